// The JSON form of log lines in queries and answers between nodes; launcher/output/log_files.hpp reads the lines. A query is
//
// {"ask":"log lines","rank":1,"stderr":true,"tail":10,"follow":true,"begun":[...]}
//
// and its answer {"begun":[...],"lines":[...],"more":false,"round":3,"host":"b"}. "begun" is the reader's position: a list of
// [round, worker, 0 or 1 for stderr, bytes]. The client returns this position with its next query. An element of "lines" is
// [rank, round, 0 or 1, bytes in base64], since logs need not be text. A query or cursor of a different form is refused; an
// element of "lines" with a different form is skipped. The code is pure: no I/O, no clock.
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

// The maximum number of files in a cursor. It keeps a query below 4 KiB.
inline constexpr std::size_t kMaxCursorFiles = 128;

inline nlohmann::json cursor_to_json(const std::vector<LogPosition>& cursor) {
  nlohmann::json list = nlohmann::json::array();
  for (const LogPosition& one : cursor) list.push_back({one.round, one.worker, one.error ? 1 : 0, one.at});
  return list;
}

// Returns nullopt if the list has a different form or contains too many files.
inline std::optional<std::vector<LogPosition>> parse_cursor(const nlohmann::json& list) {
  constexpr int kMaxNumber = std::numeric_limits<int>::max();
  constexpr auto is_number = [](const nlohmann::json& value, std::int64_t most) {
    return value.is_number_integer() && !(value.is_number_unsigned() && value.get<std::uint64_t>() > (1ULL << 62)) &&
           value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= most;
  };
  if (!list.is_array() || list.size() > kMaxCursorFiles) return std::nullopt;
  std::vector<LogPosition> cursor;
  for (const nlohmann::json& one : list) {
    if (!one.is_array() || one.size() != 4 || !is_number(one[0], kMaxNumber) || !is_number(one[1], kMaxNumber) ||
        !is_number(one[2], 1) || !is_number(one[3], std::int64_t{1} << 62)) {
      return std::nullopt;
    }
    cursor.push_back({one[0].get<int>(), one[1].get<int>(), one[2].get<int>() == 1, one[3].get<std::int64_t>()});
  }
  return cursor;
}

inline nlohmann::json pieces_to_json(const std::vector<LogPiece>& pieces) {
  nlohmann::json list = nlohmann::json::array();
  for (const LogPiece& one : pieces) list.push_back({one.rank, one.round, one.error ? 1 : 0, to_base64(one.bytes)});
  return list;
}

// Returns the elements that have the right form; the others are skipped.
inline std::vector<LogPiece> parse_pieces(const nlohmann::json& list) {
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

// Parses a query into a LogRequest; the caller sets max_bytes. Returns nullopt if the query has a different form.
inline std::optional<LogRequest> parse_log_request(const nlohmann::json& query) {
  const auto number = [&](const char* key, std::optional<int>& into) {
    const auto found = query.find(key);
    if (found == query.end()) return true;
    if (!found->is_number_integer() || *found < 0 || *found > 1'000'000'000) return false;
    into = found->get<int>();
    return true;
  };
  LogRequest request;
  if (!number("rank", request.rank) || !number("tail", request.tail)) return std::nullopt;
  const auto is_set = [&](const char* key) {
    const auto found = query.find(key);
    return found != query.end() && found->is_boolean() && found->get<bool>();
  };
  request.only_errors = is_set("stderr");
  request.follows = is_set("follow");
  if (const auto cursor = query.find("begun"); cursor != query.end()) {
    auto places = parse_cursor(*cursor);
    if (!places) return std::nullopt;
    request.cursor = *std::move(places);
  }
  return request;
}

}  // namespace ddprun
