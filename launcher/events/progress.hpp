// Progress as people read it: the bar on a terminal, the plain line elsewhere, durations and the estimate of what is left.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/channel/message.hpp"

namespace ddprun {

// "0.4 s", "12 s", "1 min 23 s", "2 h 05 min", "3 d 04 h".
std::string format_duration(double seconds);

// "1,407".
std::string format_count(std::int64_t number);

// What people are shown: the newest message, with the figures that it lacks.
struct ProgressShown {
  channel::Progress progress{};
  std::optional<double> seconds_left{};
  std::optional<std::int64_t> loss_step{};  // of a loss that is not of now
};

// Completes the messages of a round: most are heartbeats without a loss and a speed, which only logged steps have. The time
// left goes by the steps of this round only: a resumed run has no past to go by. Times are nanoseconds of one clock.
class ProgressMeter {
 public:
  void restart() { *this = {}; }
  void add(const channel::Progress& progress, std::int64_t time_ns);
  ProgressShown shown() const;

 private:
  struct Sample {
    std::int64_t step = 0;
    std::int64_t samples = 0;
    std::int64_t time_ns = 0;
  };
  std::optional<double> seconds_left() const;  // nothing before the second message
  std::optional<Sample> first_;
  Sample last_;
  Sample since_;  // where the stretch begins whose speed comes next
  Sample loss_at_;
  channel::Progress newest_{};
};

// "epoch 2/3  step 512/1,407  loss 0.3412  2,210 samples/s  32 s left"
std::string progress_line(const ProgressShown& shown);

// The same after a bar of the width that is left; never longer than `columns` - 1 characters.
std::string progress_bar(const ProgressShown& shown, int columns);

}  // namespace ddprun
