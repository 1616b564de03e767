#include "common/tables/table_rows.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "common/base/error.hpp"
#include "common/bounded/short_quote.hpp"
#include "common/tables/cell.hpp"

namespace ddprun {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014): a bijection that mixes all bits.
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30U)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27U)) * 0x94d049bb133111eb;
  return number ^ (number >> 31U);
}

std::string list_of(const std::vector<std::string>& names) {
  constexpr std::size_t kShown = 20;
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i == 0 ? "'" : ", '") + short_quote(names[i]) + "'";
  return names.size() > kShown ? text + " and " + std::to_string(names.size() - kShown) + " more" : text;
}

struct Format {
  std::string_view start;
  const char* what;
  const char* remedy;
};

}  // namespace

bool is_test_row(std::uint64_t seed, std::int64_t row, double fraction) {
  constexpr double kRange = 9007199254740992.0;  // 2^53
  const std::uint64_t bits = mixed(mixed(seed) ^ static_cast<std::uint64_t>(row)) >> 11U;
  return static_cast<double>(bits) < fraction * kRange;
}

void require_csv(std::string_view text, const std::string& file) {
  using namespace std::string_view_literals;
  static constexpr std::array kFormats{
      Format{"PAR1"sv, "is a Parquet file",
             "Convert it with: python3 -c \"import pandas; pandas.read_parquet('IN').to_csv('OUT', index=False)\""},
      Format{"ARROW1"sv, "is an Arrow file",
             "Convert it with: python3 -c \"import pandas; pandas.read_feather('IN').to_csv('OUT', index=False)\""},
      Format{"PK\x03\x04"sv, "is a zip archive or an Excel file",
             "Convert a sheet with: python3 -c \"import pandas; pandas.read_excel('IN').to_csv('OUT', index=False)\""},
      Format{"\x1f\x8b"sv, "is compressed with gzip", "Decompress it with: gunzip 'IN'"},
      Format{"\x28\xb5\x2f\xfd"sv, "is compressed with zstd", "Decompress it with: unzstd 'IN'"},
      Format{"\xff\xfe"sv, "is UTF-16 text", "Convert it with: iconv -f UTF-16 -t UTF-8 'IN' > 'OUT'"},
      Format{"\xfe\xff"sv, "is UTF-16 text", "Convert it with: iconv -f UTF-16 -t UTF-8 'IN' > 'OUT'"},
  };
  for (const Format& format : kFormats) {
    if (!text.starts_with(format.start)) continue;
    std::string remedy = format.remedy;
    const std::string stem = file.substr(0, file.rfind('.') == std::string::npos ? file.size() : file.rfind('.'));
    for (const auto& [word, path] : {std::pair<std::string, std::string>{"IN", file}, {"OUT", stem + ".csv"}}) {
      if (const std::size_t at = remedy.find("'" + word + "'"); at != std::string::npos)
        remedy.replace(at + 1, word.size(), path);
    }
    throw UsageError(file + ": " + format.what + "; expected CSV. " + remedy);
  }
}

TableRows::TableRows(std::string_view text, const std::string& file, const TrainConfig& config, TablePart part)
    : file_(file), config_(config), part_(part), records_(text, file) {
  require_csv(text, file);
  if (!records_.next(header_)) throw UsageError(file + ": has no lines; expected a header that names the columns");
  if (header_.size() > kMaxColumns) {
    throw UsageError(file + ": has " + std::to_string(header_.size()) + " columns; a table has at most " +
                     std::to_string(kMaxColumns));
  }
  for (std::size_t i = 0; i < header_.size(); ++i) {
    header_[i] = std::string(trimmed_cell(header_[i]));
    if (places_.emplace(header_[i], i).second) continue;
    throw UsageError(file + ":" + std::to_string(records_.line()) + ": two columns are called '" + short_quote(header_[i]) +
                     "'");
  }
  const std::int64_t target = place_of(config.data.target);
  if (target < 0) {
    const bool other = header_.size() == 1 && header_[0].find_first_of(";\t|") != std::string::npos;
    throw UsageError(file + ": has no column '" + short_quote(config.data.target) +
                     "', which data.target names; its columns are " + list_of(header_) +
                     (other ? ". The columns of a table must be separated by commas" : ""));
  }
  target_ = static_cast<std::size_t>(target);
}

std::int64_t TableRows::place_of(const std::string& name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? -1 : static_cast<std::int64_t>(found->second);
}

bool TableRows::belongs_to_part(std::int64_t row) const {
  // the test set is a separate file, so all rows of this file belong to the same set
  if (!config_.data.test_table.empty()) return true;
  return is_test_row(config_.seed, row, config_.data.test_fraction) == (part_ == TablePart::kTest);
}

bool TableRows::next() {
  const std::int64_t limit = part_ == TablePart::kTrain ? config_.data.train_samples : config_.data.test_samples;
  while ((limit == 0 || used_ < limit) && records_.next(cells_)) {
    if (++row_ == kMaxRows) {
      throw UsageError(file_ + ":" + std::to_string(line()) + ": a table has at most " + std::to_string(kMaxRows) + " rows");
    }
    if (cells_.size() != header_.size()) {
      if (++misshapen_ > 1) continue;
      first_misshapen_ = "line " + std::to_string(line()) + ": expected " + std::to_string(header_.size()) +
                         " cells, as in the header, found " + std::to_string(cells_.size());
    } else if (belongs_to_part(row_)) {
      if (is_missing(trimmed_cell(target()), config_.data.missing_values)) {
        ++without_target_;
        continue;
      }
      ++used_;
      return true;
    }
  }
  return false;
}

}  // namespace ddprun
