#include "launcher/doctor/verdicts/check.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/printable.hpp"
#include "common/base/split.hpp"

namespace ddprun::doctor {
namespace {

using Json = nlohmann::ordered_json;

// Longer texts are cut, so that the table stays readable. Such long texts come from the output of programs and from file
// names.
constexpr std::size_t kMaxText = 600;
constexpr std::size_t kVerdictColumn = 9;
constexpr std::size_t kNameColumn = 19;

constexpr std::array kVerdicts{CheckVerdict::kOk, CheckVerdict::kWarning, CheckVerdict::kError};

std::string bounded(std::string text) {
  if (text.size() <= kMaxText) return text;
  return std::string(cut_to(text, kMaxText)) + "...";
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(text.size() + 1, width), ' ');
  return text;
}

// Joins the lines of a message, because the table has one line for each message.
std::string one_line(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return printable(text);
}

std::string counted(int number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

std::optional<Check> check_of_json_line(std::string_view line) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  Check check;
  std::string verdict;
  for (const auto& [key, member] :
       {std::pair{"check", &check.check}, {"verdict", &verdict}, {"found", &check.found}, {"do", &check.remedy}}) {
    const auto found = object.find(key);
    if (found == object.end() || !found->is_string()) return std::nullopt;
    *member = found->get<std::string>();
  }
  const auto known = std::ranges::find_if(kVerdicts, [&](CheckVerdict one) { return verdict == name_of(one); });
  if (known == kVerdicts.end()) return std::nullopt;
  check.verdict = *known;
  if (const auto node = object.find("node"); node != object.end() && node->is_string()) check.node = node->get<std::string>();
  return check;
}

}  // namespace

const char* name_of(CheckVerdict verdict) {
  switch (verdict) {
    case CheckVerdict::kOk:
      return "ok";
    case CheckVerdict::kWarning:
      return "warning";
    case CheckVerdict::kError:
      return "error";
  }
  return "unknown";
}

Check ok(std::string check, std::string found) {
  return {std::move(check), CheckVerdict::kOk, bounded(std::move(found)), "", ""};
}

Check warning(std::string check, std::string found, std::string remedy) {
  return {std::move(check), CheckVerdict::kWarning, bounded(std::move(found)), bounded(std::move(remedy)), ""};
}

Check error(std::string check, std::string found, std::string remedy) {
  return {std::move(check), CheckVerdict::kError, bounded(std::move(found)), bounded(std::move(remedy)), ""};
}

int count(const Checks& checks, CheckVerdict verdict) {
  return static_cast<int>(std::ranges::count(checks, verdict, &Check::verdict));
}

int exit_code_of(const Checks& checks) {
  return count(checks, CheckVerdict::kError) > 0 ? 1 : 0;
}

std::string table_of(const Checks& checks) {
  std::string text;
  for (const Check& check : checks) {
    text += padded(name_of(check.verdict), kVerdictColumn) + padded(check.check, kNameColumn) + one_line(check.found) + "\n";
    if (!check.remedy.empty()) text += std::string(kVerdictColumn, ' ') + "do: " + one_line(check.remedy) + "\n";
  }
  return text + counted(count(checks, CheckVerdict::kError), "error") + ", " +
         counted(count(checks, CheckVerdict::kWarning), "warning") + "\n";
}

std::string json_lines_of(const Checks& checks) {
  std::string text;
  for (const Check& check : checks) {
    Json object;
    if (!check.node.empty()) object["node"] = check.node;
    object["check"] = check.check;
    object["verdict"] = name_of(check.verdict);
    object["found"] = check.found;
    object["do"] = check.remedy;
    // File names and output of programs may contain bytes that are not UTF-8.
    text += object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  return text;
}

std::optional<Checks> checks_of_json_lines(std::string_view lines) {
  Checks checks;
  for (const std::string_view line : split(lines, '\n')) {
    if (line.empty()) continue;
    auto check = check_of_json_line(line);
    if (!check) return std::nullopt;
    checks.push_back(*std::move(check));
  }
  return checks;
}

std::string text_of_bytes(unsigned long long bytes) {
  if (bytes < kMebibyte) return std::to_string(bytes / 1024) + " KiB";
  if (bytes < 10 * 1024 * kMebibyte) return std::to_string(bytes / kMebibyte) + " MiB";
  return std::to_string(bytes / kMebibyte / 1024) + " GiB";
}

}  // namespace ddprun::doctor
