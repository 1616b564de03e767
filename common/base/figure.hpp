// A metric of an evaluation: a value that a task measures, with its name. It passes under that name from the task through the
// worker channel, checkpoints, metrics.jsonl and TensorBoard to the console and the report. None of them has a list of the
// metrics.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun {

struct Figure {
  std::string name;  // "loss", "accuracy", "top5_accuracy", ...
  double value = 0;
  bool operator==(const Figure&) const = default;
};

// Metrics in the task's order.
using FigureList = std::vector<Figure>;

// Names of other fields in the records that contain metrics: no metric may have one of these names.
inline constexpr std::string_view kReservedFigureNames[] = {"event", "time_ns", "type", "step", "epoch", "samples"};

inline std::optional<double> value_of(const FigureList& figures, std::string_view name) {
  const auto found = std::ranges::find(figures, name, &Figure::name);
  return found == figures.end() ? std::nullopt : std::optional(found->value);
}

// "loss 0.2671"; "accuracy 90.41 %" for a name that ends in "accuracy", whose value is a fraction of 1.
std::string figure_text(const Figure& figure);
// All metrics, with the loss last and those of a validation set after the test set's: "accuracy 90.41 %, loss 0.2671". "" if
// there are none.
std::string figures_text(const FigureList& figures);
// The first metric of that text: "accuracy 90.41 %".
std::string headline_of(const FigureList& figures);

}  // namespace ddprun
