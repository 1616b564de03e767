#include "launcher/workers/early_end.hpp"

namespace ddprun {

void EarlyEnd::begin_round(int workers) {
  timer_.cancel();
  ended_well_.clear();
  running_.clear();
  for (int rank = 0; rank < workers; ++rank) running_.insert(rank);
}

void EarlyEnd::ended(int rank, bool ok) {
  running_.erase(rank);
  if (running_.empty()) timer_.cancel();
  if (!ok || !agent_.at_work()) return;
  ended_well_.push_back(rank);
  if (ended_well_.size() > 1 || running_.empty()) return;
  timer_.expires_after(after_);
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) check_workers();
  });
}

void EarlyEnd::check_workers() {
  if (running_.empty() || !agent_.at_work()) return;
  agent_.report_early_end(std::chrono::duration<double>(after_).count(), ended_well_, {running_.begin(), running_.end()});
}

}  // namespace ddprun
