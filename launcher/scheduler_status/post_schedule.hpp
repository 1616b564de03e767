// Decides when to send the progress of a job to its scheduler. Schedulers limit requests, so at least kMinInterval passes
// between two requests. At the end of the job the last request is sent immediately. So the scheduler does not show an old
// percentage for a finished job. The code is pure: no I/O, no clock.
#pragma once

#include <chrono>
#include <optional>

namespace ddprun {

class PostSchedule {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kMinInterval{60};

  void on_data() { has_news_ = true; }
  bool is_due(Time now) const { return has_news_ && !sending_ && (!last_ || now - *last_ >= kMinInterval); }
  bool is_due_at_end() const { return has_news_; }
  void on_start(Time now) {
    last_ = now;
    sending_ = true;
    has_news_ = false;
  }
  void on_done() { sending_ = false; }

 private:
  bool has_news_ = false;  // data has arrived since the last request
  bool sending_ = false;
  std::optional<Time> last_;
};

}  // namespace ddprun
