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

// Estimates the time left from the steps of this round only: a resumed run has no past to go by. Times are nanoseconds of one
// clock.
class ProgressMeter {
 public:
  void restart() { first_.reset(); }
  void add(const channel::Progress& progress, std::int64_t time_ns);
  // Nothing before the second sample.
  std::optional<double> seconds_left() const;

 private:
  struct Sample {
    std::int64_t step;
    std::int64_t time_ns;
  };
  std::optional<Sample> first_;
  Sample last_{};
  std::int64_t steps_total_ = 0;
};

// "epoch 2/3  step 512/1,407  loss 0.3412  2,210 samples/s  32 s left"
std::string progress_line(const channel::Progress& progress, std::optional<double> seconds_left);

// The same after a bar of the width that is left; never longer than `columns` - 1 characters.
std::string progress_bar(const channel::Progress& progress, std::optional<double> seconds_left, int columns);

}  // namespace ddprun
