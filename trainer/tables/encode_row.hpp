// Encodes a row of a table as the inputs of a model, by a column plan (common/tables/column_plan.hpp). Training, evaluation
// and prediction use this one encoder, so that the same cell always becomes the same input. The code is pure: no I/O, no
// clock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/tables/column_plan.hpp"

namespace ddprun::trainer {

class RowEncoder {
 public:
  // The plan must outlive the object.
  explicit RowEncoder(const TablePlan& plan);

  // Writes the inputs of a row. `cells` has one cell for each column of the plan; cells of columns that are left out are
  // ignored. `inputs` has width_of(plan).all() numbers. A cell that does not fit, such as text in a column of numbers, is
  // encoded as a missing value, and the index of its column is added to `misfits`.
  void encode(std::span<const std::string_view> cells, std::span<float> inputs, std::vector<std::size_t>& misfits) const;

  // Returns the number of the class with that name; -1 for an unknown name. Spaces around the name are ignored.
  std::int64_t class_of(std::string_view cell) const;

 private:
  using Codes = std::unordered_map<std::string_view, std::int64_t>;  // the texts are owned by the plan

  const TablePlan& plan_;
  PlanWidth width_;
  std::vector<double> deviations_;  // standard deviation of each column; 1 if the variance is 0
  std::vector<Codes> codes_;        // for each column, the number of each category
  Codes classes_;
};

// Returns a description of a valid cell of the column, for messages: "a number", "true or false (yes or no)", "a date such as
// 2024-02-29".
const char* expected_in(const ColumnPlan& column);

}  // namespace ddprun::trainer
