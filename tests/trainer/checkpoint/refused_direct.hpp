// Simulates a file system that refuses O_DIRECT, or that accepts O_DIRECT and then refuses the writes. The test program itself
// defines the libc functions fcntl and pwrite, so the calls of all threads use these definitions.
#pragma once

namespace ddprun::test {

enum class Direct { kAsItIs, kFlagRefused, kWritesRefused };

// Makes direct writes fail in the given way during the lifetime of the object. Only one object may exist at a time.
class RefusedDirect {
 public:
  explicit RefusedDirect(Direct how);
  ~RefusedDirect();
  RefusedDirect(const RefusedDirect&) = delete;
  RefusedDirect& operator=(const RefusedDirect&) = delete;

  static int refusals();  // number of refused calls since the last object was created
};

}  // namespace ddprun::test
