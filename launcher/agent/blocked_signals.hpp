// The signals that ddprun reads from a signalfd instead of handling them in signal handlers.
#pragma once

#include <csignal>
#include <map>
#include <vector>

namespace ddprun {

// Blocks the signals that ddprun handles, so that it can read them from a signalfd. Ignores SIGPIPE, since a closed console
// must not end a job. Sets SIGCHLD to its default, since the kernel keeps no exit status of children if SIGCHLD is ignored. The
// destructor restores all previous settings. If the caller of ddprun ignores any other signal, the workers ignore it too, as
// under torchrun.
class BlockedSignals {
 public:
  explicit BlockedSignals(const std::vector<int>& handled);
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  // Returns a new signalfd for the blocked signals. The caller owns it. Throws InternalError.
  int descriptor() const;

 private:
  void dispose(int signal, void (*disposition)(int));

  sigset_t set_{};
  sigset_t mask_before_{};
  std::map<int, struct sigaction> before_;
};

}  // namespace ddprun
