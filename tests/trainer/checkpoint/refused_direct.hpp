// A file system that has no direct writes, or takes the flag and refuses the writes: fcntl and pwrite of libc are defined in
// the test program itself, so every caller in it, on whichever thread, comes through here.
#pragma once

namespace ddprun::test {

enum class Direct { kAsItIs, kFlagRefused, kWritesRefused };

// While it lives, O_DIRECT is refused so; one at a time.
class RefusedDirect {
 public:
  explicit RefusedDirect(Direct how);
  ~RefusedDirect();
  RefusedDirect(const RefusedDirect&) = delete;
  RefusedDirect& operator=(const RefusedDirect&) = delete;

  static int refusals();  // since the newest one was made
};

}  // namespace ddprun::test
