#include "trainer/metrics/baseline.hpp"

#include <array>
#include <cstdio>
#include <string_view>

namespace ddprun::trainer {
namespace {

std::string value_text(double value, bool is_accuracy) {
  std::array<char, 32> text{};
  if (is_accuracy) {
    std::snprintf(text.data(), text.size(), "%.2f %%", 100 * value);
  } else {
    std::snprintf(text.data(), text.size(), "%.6g", value);
  }
  return text.data();
}

}  // namespace

std::vector<std::string> baseline_lines(const MetricList& figures) {
  std::vector<std::string> lines;
  for (const Metric& baseline : figures) {
    if (!baseline.name.starts_with(kBaselinePrefix)) continue;
    const std::string name = baseline.name.substr(kBaselinePrefix.size());
    const auto value = value_of(figures, name);
    if (!value) continue;
    const bool is_accuracy = name.ends_with("accuracy");
    const bool better = is_accuracy ? *value > baseline.value : *value < baseline.value;
    const std::string constant = is_accuracy ? "always the most frequent class" : "always the mean";
    lines.push_back("test " + name + " " + value_text(*value, is_accuracy) + "; " + constant + ": " +
                    value_text(baseline.value, is_accuracy) +
                    (better ? ""
                            : ". Warning: the model is not better than this constant prediction. Check the columns, or train "
                              "longer (epochs)"));
  }
  return lines;
}

}  // namespace ddprun::trainer
