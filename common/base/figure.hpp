// A figure of an evaluation: something that a task measures, with its name. It travels under that name from the task through
// the worker channel, checkpoints, metrics.jsonl and TensorBoard to the console and the report; none of them knows which
// figures there are.
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

// Figures in the order in which the task lists them.
using FigureList = std::vector<Figure>;

// Names of other fields in the records into which figures are written: no figure may have one of them.
inline constexpr std::string_view kReservedFigureNames[] = {"event", "time_ns", "type", "step", "epoch", "samples"};

inline std::optional<double> value_of(const FigureList& figures, std::string_view name) {
  const auto found = std::ranges::find(figures, name, &Figure::name);
  return found == figures.end() ? std::nullopt : std::optional(found->value);
}

// "loss 0.2671"; "accuracy 90.41 %" for a name that ends in "accuracy", whose value is a share of 1.
std::string figure_text(const Figure& figure);
// All figures, with the loss last and those of a validation set behind the test set's: "accuracy 90.41 %, loss 0.2671".
// "" when there are none.
std::string figures_text(const FigureList& figures);
// The first figure of that text: "accuracy 90.41 %".
std::string headline_of(const FigureList& figures);

}  // namespace ddprun
