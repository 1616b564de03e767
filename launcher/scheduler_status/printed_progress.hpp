// Finds the progress of a program in the lines that it prints. So ddprun can send a status even for a program that does not
// report its steps over the worker channel. progress_poster.cpp passes the output of rank 0 to this class. The code is pure:
// no I/O, no clock.
//
// The problem. Programs print their progress in many forms, and a wrong percentage is worse than none. The bar of tqdm is the
// worst case: "450/1000" may count the steps of the whole run or the batches of one epoch, and the bar does not show which.
//
// The idea. We read epochs ("Epoch 2/10"), steps ("step 450/1000", or a bar) and metrics ("loss=0.23", "'loss': 0.23"). The
// percentage needs a total of the whole run:
//
//   epoch 2/10 and step or bar 450/1000    (1 * 1000 + 450) of 10 * 1000 steps
//   epoch 2/10 alone                       1 of 10 steps
//   "step 450/1000" without any epoch      450 of 1000 steps
//   a bar without any epoch, "Epoch 2"     the step, without a total, so without a percentage
//
// Epochs are counted from 1, unless the program has printed epoch 0. Lines longer than kMaxLine are ignored.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/channel/message.hpp"
#include "launcher/events/stream.hpp"

namespace ddprun {

class PrintedProgress {
 public:
  static constexpr std::size_t kMaxLine = 1024;
  static constexpr std::size_t kMaxMetricsOfLine = 20;

  // Reads more output of a stream. Lines end with '\n' or '\r'. Returns true if a line contained progress or metrics.
  bool feed(Stream stream, std::string_view bytes);

  // Returns nullopt before the first line with progress or metrics. `steps_total` is 0 if the length of the run is not known.
  std::optional<channel::Progress> progress() const;

 private:
  struct Position {
    std::int64_t at = 0;
    std::int64_t of = 0;  // 0 if not known
  };
  bool read_line(std::string_view line);
  bool read_epoch(std::string_view line);
  bool read_step(std::string_view line);
  bool read_bar(std::string_view line);
  bool read_metrics(std::string_view line);

  std::array<std::string, 2> rests_;  // the unfinished line of each stream
  std::array<bool, 2> skips_line_{};  // true: the unfinished line is too long, so it is skipped
  std::optional<Position> epoch_;
  bool counts_from_zero_ = false;  // the program has printed epoch 0
  std::optional<Position> step_;   // position from a line with a word such as "step"
  std::optional<Position> bar_;
  bool step_is_newest_ = false;  // the newest position is step_, not bar_
  channel::Progress metrics_{};  // loss, learning rate and other metrics
  bool has_metrics_ = false;
};

}  // namespace ddprun
