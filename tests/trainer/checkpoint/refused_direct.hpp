// A file system without direct writes, or one that accepts the flag and refuses the writes. The test program defines libc's
// fcntl and pwrite itself, so all callers in it come through here, on any thread.
#pragma once

namespace ddprun::test {

enum class Direct { kAsItIs, kFlagRefused, kWritesRefused };

// Refuses O_DIRECT in this way during its lifetime; only one may exist at a time.
class RefusedDirect {
 public:
  explicit RefusedDirect(Direct how);
  ~RefusedDirect();
  RefusedDirect(const RefusedDirect&) = delete;
  RefusedDirect& operator=(const RefusedDirect&) = delete;

  static int refusals();  // since the newest one was created
};

}  // namespace ddprun::test
