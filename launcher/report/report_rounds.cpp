#include "launcher/report/report_rounds.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "launcher/events/event_json.hpp"

namespace ddprun {
namespace {

// Formats the value and indents all lines except the first. Inside a JSON string a newline is escaped, so each raw '\n' ends a
// line of the format.
std::string indented(const ReportJson& value, std::string_view by) {
  const std::string text = value.dump(2, ' ', false, ReportJson::error_handler_t::replace);
  std::string result;
  result.reserve(text.size() + text.size() / 8);
  for (const char c : text) {
    result += c;
    if (c == '\n') result += by;
  }
  return result;
}

}  // namespace

bool ReportRounds::appended(ReportJson& rounds) {
  bool left_out = false;
  if (rounds.size() > kFirst + kLast) {
    rounds.erase(rounds.begin() + kFirst);
    if (texts_.size() > kFirst) texts_.erase(texts_.begin() + kFirst);
    left_out = true;
  }
  if (rounds.size() <= kFirst + kLastInFull) return left_out;
  const std::size_t older = rounds.size() - kLastInFull - 1;
  ReportJson& round = rounds[older];
  if (!round.is_object() || !round.contains("consequences")) return left_out;
  for (ReportJson& failure : round["consequences"]) {
    for (const char* evidence : {"stderr_tail", "evidence", "call_stack"}) {
      if (failure.is_object() && failure.erase(evidence) > 0) changed(older);
    }
  }
  return left_out;
}

void ReportRounds::changed(std::size_t round) {
  if (round < texts_.size()) texts_[round].clear();
}

std::string ReportRounds::text_of(const ReportJson& document) {
  const ReportJson& rounds = document.at("rounds");
  texts_.resize(rounds.size());
  if (!texts_.empty()) texts_.back().clear();
  std::string text = "{";
  for (const auto& [key, value] : document.items()) {
    text += (text.size() > 1 ? ",\n  " : "\n  ") + ReportJson(key).dump() + ": ";
    if (key != "rounds" || rounds.empty()) {
      text += indented(value, "  ");
      continue;
    }
    text += "[";
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (texts_[i].empty()) {
        texts_[i] = indented(rounds[i], "    ");
        ++formatted_rounds_;
      }
      text += (i > 0 ? ",\n    " : "\n    ") + texts_[i];
    }
    text += "\n  ]";
  }
  return text + "\n}\n";
}

void add_consequences(ReportJson& round, const std::vector<Failure>& consequences) {
  std::map<std::string, std::vector<int>> others;
  for (const Failure& failure : consequences) {
    if (round["consequences"].size() < ReportRounds::kConsequences) {
      round["consequences"].push_back(failure_json(failure));
    } else {
      others[name_of(failure.cause)].push_back(failure.rank);
    }
  }
  for (const auto& [cause, ranks] : others) {
    const std::vector<int> named(
        ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(std::min(ranks.size(), ReportRounds::kRanksNamed)));
    round["other_consequences"].push_back(ReportJson{{"cause", cause}, {"count", ranks.size()}, {"ranks", named}});
  }
}

}  // namespace ddprun
