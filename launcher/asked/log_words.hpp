// The JSON form of log lines in queries and answers between nodes; launcher/output/log_files.hpp reads the lines. A query is
//
// {"ask":"log lines","rank":1,"stderr":true,"tail":10,"follow":true,"begun":[...]}
//
// and its answer {"begun":[...],"lines":[...],"more":false,"round":3,"host":"b"}. "begun" is the reader's position: a list of
// [round, worker, 0 or 1 for stderr, bytes]. The client returns it with its next query. An element of "lines" is [rank, round,
// 0 or 1, bytes in base64], since logs need not be text. Any other form is refused. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/base64.hpp"
#include "launcher/output/log_files.hpp"

namespace ddprun {

// Limit per answering node, so that a query with all of them stays below 4 KiB.
inline constexpr std::size_t kMostBegunFiles = 128;

inline nlohmann::json begun_to_json(const std::vector<LogPlace>& begun) {
  nlohmann::json list = nlohmann::json::array();
  for (const LogPlace& one : begun) list.push_back({one.round, one.worker, one.error ? 1 : 0, one.at});
  return list;
}

// Returns nullopt for any other form, and for more files than a node includes in an answer.
inline std::optional<std::vector<LogPlace>> begun_of(const nlohmann::json& list) {
  constexpr int kMostNumber = std::numeric_limits<int>::max();
  constexpr auto is_number = [](const nlohmann::json& value, std::int64_t most) {
    return value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > (1ULL << 62)) &&
           value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= most;
  };
  if (!list.is_array() || list.size() > kMostBegunFiles) return std::nullopt;
  std::vector<LogPlace> begun;
  for (const nlohmann::json& one : list) {
    if (!one.is_array() || one.size() != 4 || !is_number(one[0], kMostNumber) || !is_number(one[1], kMostNumber) ||
        !is_number(one[2], 1) || !is_number(one[3], std::int64_t{1} << 62)) {
      return std::nullopt;
    }
    begun.push_back({one[0].get<int>(), one[1].get<int>(), one[2].get<int>() == 1, one[3].get<std::int64_t>()});
  }
  return begun;
}

inline nlohmann::json pieces_to_json(const std::vector<LogPiece>& pieces) {
  nlohmann::json list = nlohmann::json::array();
  for (const LogPiece& one : pieces) list.push_back({one.rank, one.round, one.error ? 1 : 0, to_base64(one.bytes)});
  return list;
}

// Returns the elements of the right form.
inline std::vector<LogPiece> pieces_of(const nlohmann::json& list) {
  std::vector<LogPiece> pieces;
  if (!list.is_array()) return pieces;
  for (const nlohmann::json& one : list) {
    if (!one.is_array() || one.size() != 4 || !one[0].is_number_integer() || !one[1].is_number_integer() ||
        !one[2].is_number_integer() || !one[3].is_string()) {
      continue;
    }
    auto bytes = from_base64(one[3].get_ref<const std::string&>());
    if (bytes) pieces.push_back({one[0].get<int>(), one[1].get<int>(), one[2].get<int>() == 1, *std::move(bytes)});
  }
  return pieces;
}

// Parses a query into a LogWish, without most_bytes. Returns nullopt if the query has another form.
inline std::optional<LogWish> wish_of(const nlohmann::json& asked) {
  const auto number = [&](const char* key, std::optional<int>& into) {
    const auto found = asked.find(key);
    if (found == asked.end()) return true;
    if (!found->is_number_integer() || *found < 0 || *found > 1'000'000'000) return false;
    into = found->get<int>();
    return true;
  };
  LogWish wish;
  if (!number("rank", wish.rank) || !number("tail", wish.tail)) return std::nullopt;
  const auto is_set = [&](const char* key) {
    const auto found = asked.find(key);
    return found != asked.end() && found->is_boolean() && found->get<bool>();
  };
  wish.only_errors = is_set("stderr");
  wish.follows = is_set("follow");
  if (const auto begun = asked.find("begun"); begun != asked.end()) {
    auto places = begun_of(*begun);
    if (!places) return std::nullopt;
    wish.begun = *std::move(places);
  }
  return wish;
}

}  // namespace ddprun
