// Formats progress as text for users: a bar for a terminal, a plain line for other outputs, durations, and the estimated
// remaining time. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/channel/message.hpp"

namespace ddprun {

// Returns a text such as "0.4 s", "12 s", "1 min 23 s", "2 h 05 min" or "3 d 04 h".
std::string format_duration(double seconds);

// Returns a text such as "1,407".
std::string format_count(std::int64_t number);

// The displayed progress: the newest message, completed with values from earlier messages.
struct ProgressShown {
  channel::Progress progress{};
  std::optional<double> seconds_left{};
  std::optional<std::int64_t> loss_step{};  // step of the training loss, if the loss is older than the newest step
};

// Merges the progress messages of a round. Most of them are heartbeats without training loss and speed, so values of the last
// logged step are kept. The remaining time is estimated only from messages of this round, since a resumed run has no messages
// from earlier rounds. All times are nanoseconds of the same clock.
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
  std::optional<double> seconds_left() const;  // nullopt before the second message
  std::optional<Sample> first_;
  Sample last_;
  Sample since_;  // start of the interval over which the speed is measured
  Sample loss_at_;
  channel::Progress newest_{};
};

// Returns a text such as "epoch 2/3  step 512/1,407  loss 0.3412  2,210 samples/s  32 s left".
std::string progress_line(const ProgressShown& shown);

// Returns a bar that fills the remaining width, followed by the same text. The result has at most `columns` - 1 characters.
std::string progress_bar(const ProgressShown& shown, int columns);

}  // namespace ddprun
