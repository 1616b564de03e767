// The signals that ddprun reads from a descriptor instead of being interrupted by them.
#pragma once

#include <csignal>
#include <map>
#include <vector>

namespace ddprun {

// The signals this program handles, blocked and ready to be read from a descriptor; as they were before at the end. Workers
// inherit what the caller ignores but for these, as from torchrun. SIGPIPE is ignored meanwhile: a closed console is no reason
// to end a job. SIGCHLD must not be: the kernel would keep no exit codes.
class BlockedSignals {
 public:
  explicit BlockedSignals(const std::vector<int>& handled);
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // A new signalfd, of the caller. Throws InternalError.
  int descriptor() const;

 private:
  void dispose(int signal, void (*disposition)(int));

  sigset_t set_{};
  sigset_t mask_before_{};
  std::map<int, struct sigaction> before_;
};

}  // namespace ddprun
