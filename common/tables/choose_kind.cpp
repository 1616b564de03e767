#include "common/tables/choose_kind.hpp"

#include <algorithm>
#include <string_view>

#include "common/bounded/short_quote.hpp"
#include "common/tables/cell.hpp"
#include "common/tables/make_plan.hpp"

namespace ddprun {
namespace {

using Kind = ColumnPlan::Kind;

// in a column with fewer values, different texts do not mean that the column contains identifiers
constexpr std::int64_t kMinIdentifiers = 10;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

// Returns true if `count` is at least 90 % of the values.
bool nearly_all(std::int64_t count, std::int64_t of) {
  return 10 * count >= 9 * of;
}

class Choice {
 public:
  Choice(const std::string& name, const ColumnScan& scan, const DataConfig& data) : scan_(scan), data_(data) {
    chosen_.column.name = name;
    chosen_.column.missing = scan.missing();
    chosen_.column.different = scan.too_many_texts() ? -1 : scan.different();
  }

  ChosenColumn make() {
    const std::string& name = chosen_.column.name;
    if (contains(data_.leave_out, name)) return left_out("data.leave_out");
    if (contains(data_.as_number, name)) return as_number();
    if (contains(data_.as_one_hot, name)) return as_category(Kind::kOneHot, "data.as_one_hot");
    if (contains(data_.as_embedding, name)) return as_category(Kind::kEmbedding, "data.as_embedding");
    if (is_index_name(name)) return left_out("an index that pandas or R wrote");
    if (scan_.present() == 0) return left_out("has no values");
    if (scan_.different() == 1 && scan_.missing() == 0) return left_out("has one value in all rows");
    return by_values();
  }

 private:
  ChosenColumn by_values() {
    const std::int64_t present = scan_.present();
    if (scan_.numbers() == present) return numbers(Kind::kNumber, scan_.number_values());
    if (scan_.truths() == present) return truths();
    if (scan_.dates() == present) return numbers(Kind::kDate, scan_.date_values());
    if (scan_.numbers() + scan_.refused() == present || scan_.dates() + scan_.refused() == present) {
      return problem(scan_.first_refused(), std::string(refused_form(scan_.first_refused().cell)) + remedy_of_refused());
    }
    if (nearly_all(scan_.numbers(), present)) {
      return problem(scan_.first_non_number(),
                     "is not a number, but " + std::to_string(scan_.numbers()) + " of " + std::to_string(present) +
                         " values are. Correct it, add it to " +
                         "data.missing_values, or add the column to data.as_number or data.as_one_hot");
    }
    if (nearly_all(scan_.dates(), present)) {
      return problem(scan_.first_text().line > 0 ? scan_.first_text() : scan_.first_refused(),
                     "is not a date such as 2024-02-29, but " + std::to_string(scan_.dates()) + " of " +
                         std::to_string(present) +
                         " values are. Correct it, add it to data.missing_values, or add the column to data.leave_out");
    }
    if (scan_.too_many_texts()) return left_out("has more than 10,000 different texts, or a very long one");
    if (present > kMinIdentifiers && 2 * scan_.different() > present) return left_out("most of its texts occur only once");
    return category(scan_.different() <= kMaxOneHot ? Kind::kOneHot : Kind::kEmbedding);
  }

  static std::string remedy_of_refused() {
    return ". Write numbers as 1234.5 and dates as 2024-02-29, or add the column to data.as_one_hot or data.leave_out";
  }

  ChosenColumn as_number() {
    if (scan_.numbers() == 0) return problem_of_column("has no number, but data.as_number names the column");
    chosen_.column.missing_if_invalid = true;
    chosen_.column.missing = scan_.rows() - scan_.numbers();
    return numbers(Kind::kNumber, scan_.number_values());
  }

  ChosenColumn as_category(Kind kind, const char* key) {
    if (scan_.present() == 0) return problem_of_column(std::string("has no values, but ") + key + " names the column");
    if (scan_.too_many_texts()) {
      return problem_of_column(std::string("has more than 10,000 different texts, or a text of more than 256 bytes, but ") +
                               key + " names the column");
    }
    return category(kind);
  }

  ChosenColumn numbers(Kind kind, const std::vector<double>& values) {
    const Moments moments = moments_of(values);
    ColumnPlan& column = chosen_.column;
    column.kind = kind;
    column.mean = moments.mean;
    column.variance = moments.variance;
    column.median = median_of(values);
    column.has_missing = column.missing > 0;
    return chosen_;
  }

  ChosenColumn truths() {
    ColumnPlan& column = chosen_.column;
    const auto present = static_cast<double>(scan_.present()), trues = static_cast<double>(scan_.true_cells());
    column.kind = Kind::kTruth;
    column.mean = trues / present;
    column.variance = column.mean * (1 - column.mean);
    column.median = 2 * trues > present ? 1 : 0;
    column.has_missing = column.missing > 0;
    return chosen_;
  }

  ChosenColumn category(Kind kind) {
    if (scan_.first_not_utf8().line > 0) {
      return problem(scan_.first_not_utf8(), "is not UTF-8. Convert the file, for example with iconv -f LATIN1 -t UTF-8");
    }
    chosen_.column.kind = kind;
    chosen_.column.categories = scan_.texts();
    chosen_.column.has_missing = chosen_.column.missing > 0;
    return chosen_;
  }

  ChosenColumn left_out(const std::string& reason) {
    chosen_.column.kind = Kind::kLeftOut;
    chosen_.column.reason = reason;
    return chosen_;
  }

  ChosenColumn problem(const ColumnScan::Place& place, const std::string& why) {
    chosen_.problem = "line " + std::to_string(place.line) + ": column '" + short_quote(chosen_.column.name) + "': '" +
                      short_quote(place.cell) + "' " + why;
    return left_out("see the problems above");
  }

  ChosenColumn problem_of_column(const std::string& why) {
    chosen_.problem = "column '" + short_quote(chosen_.column.name) + "': " + why;
    return left_out("see the problems above");
  }

  const ColumnScan& scan_;
  const DataConfig& data_;
  ChosenColumn chosen_;
};

}  // namespace

ChosenColumn choose_kind(const std::string& name, const ColumnScan& scan, const DataConfig& data) {
  return Choice(name, scan, data).make();
}

bool is_index_name(const std::string& name) {
  constexpr std::string_view kUnnamed = "Unnamed: ";
  return name.empty() ||
         (name.starts_with(kUnnamed) && name.find_first_not_of("0123456789", kUnnamed.size()) == std::string::npos);
}

}  // namespace ddprun
