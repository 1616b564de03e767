// Implementation of stuck_look.hpp.
#include "launcher/workers/stuck_look.hpp"

#include <string>

namespace ddprun {

StuckLook::StuckLook(boost::asio::io_context& io, std::chrono::milliseconds limit, Hooks hooks)
    : timer_(io), hooks_(std::move(hooks)) {
  if (limit.count() > 0) watch_.emplace(limit);
}

void StuckLook::begin_round() {
  if (!watch_) return;
  watch_->clear();
  look();
}

void StuckLook::look() {
  timer_.expires_after(watch_->interval());
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const auto time = std::chrono::steady_clock::now();
    const std::vector<pid_t> pids = hooks_.workers();
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
      const pid_t pid = pids[rank];
      if (pid == 0 || !watch_->see(static_cast<int>(rank), process_state(pid), time)) continue;
      const bool goes_on = hooks_.found({static_cast<int>(rank), pid,
                                         "process " + std::to_string(pid) +
                                             " has been in uninterruptible sleep (state D) for too long "
                                             "(TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT) and cannot be killed"});
      if (!goes_on) return;
    }
    look();
  });
}

}  // namespace ddprun
