// Implementation of figure.hpp. Consoles and reports call it.
#include "common/base/figure.hpp"

#include <array>
#include <cstdio>

namespace ddprun {
namespace {

// Moves the loss behind the other metrics, and metrics of the validation samples behind those of the test set.
FigureList as_shown(FigureList figures) {
  std::ranges::stable_sort(figures, {}, [](const Figure& figure) {
    return (figure.name.starts_with("validation_") ? 2 : 0) +
           (figure.name == "loss" || figure.name == "validation_loss" ? 1 : 0);
  });
  return figures;
}

}  // namespace

std::string figure_text(const Figure& figure) {
  const bool share = figure.name.ends_with("accuracy");
  std::array<char, 400> number{};  // the largest double has 309 digits before its decimal point
  std::snprintf(number.data(), number.size(), share ? " %.2f %%" : " %.4f", share ? 100 * figure.value : figure.value);
  return figure.name + number.data();
}

std::string figures_text(const FigureList& figures) {
  std::string text;
  for (const Figure& figure : as_shown(figures)) text += (text.empty() ? "" : ", ") + figure_text(figure);
  return text;
}

std::string headline_of(const FigureList& figures) {
  return figures.empty() ? "" : figure_text(as_shown(figures).front());
}

}  // namespace ddprun
