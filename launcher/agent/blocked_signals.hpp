// The signals that ddprun reads from a descriptor instead of being interrupted by them.
#pragma once

#include <csignal>
#include <map>
#include <vector>

namespace ddprun {

// Blocks the signals that this program handles, so that they can be read from a descriptor; the destructor restores them.
// Except for these, workers inherit which signals the caller ignores, as from torchrun. SIGPIPE is ignored meanwhile, since a
// closed console is no reason to end a job. SIGCHLD must not be: the kernel would keep no exit status.
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
