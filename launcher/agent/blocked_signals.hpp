// The signals that ddprun reads from a descriptor instead of being interrupted by them.
#pragma once

#include <csignal>
#include <map>
#include <vector>

namespace ddprun {

// Blocks the signals that this program handles, so that they can be read from a descriptor. Ignores SIGPIPE, since a closed
// console must not end a job. Sets SIGCHLD to its default: if it were ignored, the kernel would keep no exit status of a child.
// The destructor restores all of them. Any other signal that the caller ignores is ignored by the workers as well, as under
// torchrun.
class BlockedSignals {
 public:
  explicit BlockedSignals(const std::vector<int>& handled);
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // A new signalfd, owned by the caller. Throws InternalError.
  int descriptor() const;

 private:
  void dispose(int signal, void (*disposition)(int));

  sigset_t set_{};
  sigset_t mask_before_{};
  std::map<int, struct sigaction> before_;
};

}  // namespace ddprun
