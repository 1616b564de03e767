// Implementation of figure.hpp. Consoles and reports call it.
#include "common/base/figure.hpp"

#include <array>
#include <cstdio>

namespace ddprun {
namespace {

FigureList with_loss_last(FigureList figures) {
  std::ranges::stable_partition(figures, [](const Figure& figure) { return figure.name != "loss"; });
  return figures;
}

}  // namespace

std::string figure_text(const Figure& figure) {
  const bool share = figure.name.ends_with("accuracy");
  std::array<char, 400> number{};  // the largest double has 309 digits before its point
  std::snprintf(number.data(), number.size(), share ? " %.2f %%" : " %.4f", share ? 100 * figure.value : figure.value);
  return figure.name + number.data();
}

std::string figures_text(const FigureList& figures) {
  std::string text;
  for (const Figure& figure : with_loss_last(figures)) text += (text.empty() ? "" : ", ") + figure_text(figure);
  return text;
}

std::string headline_of(const FigureList& figures) {
  return figures.empty() ? "" : figure_text(with_loss_last(figures).front());
}

}  // namespace ddprun
