// Collects the statistics of one column in one pass over the rows that are used for training. make_plan.cpp chooses the kind
// of the column from these statistics. The code is pure: no I/O, no clock.
//
// Memory is bounded: 8 bytes for each number or date, and at most kMaxCategories distinct texts of at most kMaxCategoryBytes
// bytes each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddprun {

class ColumnScan {
 public:
  static constexpr std::size_t kMaxCategories = 10'000;
  static constexpr std::size_t kMaxCategoryBytes = 256;

  // The first cell with some property, for messages.
  struct Place {
    std::int64_t line = 0;  // line in the file, counted from 1; 0 if there is no cell
    std::string cell;       // the first kMaxCategoryBytes + 1 bytes of the cell
  };

  // Adds the cell of the next row. `missing_values`: see is_missing() in cell.hpp.
  void add(std::string_view cell, std::int64_t line, const std::vector<std::string>& missing_values);

  std::int64_t rows() const { return rows_; }
  std::int64_t missing() const { return missing_; }
  std::int64_t present() const { return rows_ - missing_; }
  std::int64_t numbers() const { return static_cast<std::int64_t>(numbers_.size()); }
  std::int64_t truths() const { return truths_; }
  std::int64_t dates() const { return static_cast<std::int64_t>(dates_.size()); }
  std::int64_t refused() const { return refused_; }  // number of cells for which refused_form() returns a reason

  const std::vector<double>& number_values() const { return numbers_; }
  const std::vector<double>& date_values() const { return dates_; }
  std::int64_t true_cells() const { return true_cells_; }

  // Returns the distinct texts of the cells that are not missing, in the order of their bytes. The result is empty if
  // too_many_texts() is true.
  std::vector<std::string> texts() const;
  std::int64_t count_of(const std::string& text) const;
  std::int64_t different() const { return static_cast<std::int64_t>(counts_.size()); }
  // Returns true if there are more than kMaxCategories distinct texts, or if one text is longer than kMaxCategoryBytes.
  bool too_many_texts() const { return too_many_; }

  const Place& first_refused() const { return first_refused_; }
  // the first cell that is plain text: not a number, truth value or date, and not refused
  const Place& first_text() const { return first_text_; }
  const Place& first_non_number() const { return first_non_number_; }
  const Place& first_not_utf8() const { return first_not_utf8_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  void count(std::string_view cell, std::int64_t line);

  std::int64_t rows_ = 0;
  std::int64_t missing_ = 0;
  std::int64_t truths_ = 0;
  std::int64_t true_cells_ = 0;
  std::int64_t refused_ = 0;
  std::vector<double> numbers_;
  std::vector<double> dates_;
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> counts_;
  bool too_many_ = false;
  Place first_refused_;
  Place first_text_;
  Place first_non_number_;
  Place first_not_utf8_;
};

// Returns the median; for an even number of values, the mean of the two values in the middle. Returns 0 if there are no
// values.
double median_of(std::vector<double> values);

struct Moments {
  double mean = 0;
  double variance = 0;  // population variance
};
// Returns the mean and the variance. If all values are equal, the mean is exactly this value and the variance is exactly 0. If
// there are no values, both are 0. The function does not compute the standard deviation, because ddprun is linked without
// libm.
Moments moments_of(const std::vector<double>& values);

}  // namespace ddprun
