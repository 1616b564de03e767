// A figure of an evaluation: what a task measures, by name. From the task it travels as such through the worker channel,
// checkpoints, metrics.jsonl and TensorBoard to the console and the report; none of them knows which figures there are.
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

// In the order in which the task names them.
using FigureList = std::vector<Figure>;

// Fields of the records that figures are written into: no figure is called so.
inline constexpr std::string_view kReservedFigureNames[] = {"event", "time_ns", "type", "step", "epoch", "samples"};

inline std::optional<double> value_of(const FigureList& figures, std::string_view name) {
  const auto found = std::ranges::find(figures, name, &Figure::name);
  return found == figures.end() ? std::nullopt : std::optional(found->value);
}

// "loss 0.2671"; "accuracy 90.41 %" for a name that ends so, which is a share of 1.
std::string figure_text(const Figure& figure);
// All of them, the loss last: "accuracy 90.41 %, loss 0.2671". "" of none.
std::string figures_text(const FigureList& figures);
// The first of those: "accuracy 90.41 %".
std::string headline_of(const FigureList& figures);

}  // namespace ddprun
