#include "launcher/doctor/nodes/node_report.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/overloaded.hpp"
#include "common/base/printable.hpp"

namespace ddprun::doctor {
namespace {

using Json = nlohmann::json;

// Limits of a received message. The messages of `ddprun doctor` are far below these limits.
constexpr std::size_t kMaxText = 1000;
constexpr std::size_t kMaxFacts = 64;
constexpr std::size_t kMaxChecks = 256;
constexpr std::size_t kMaxPeers = 1024;
constexpr std::size_t kMaxAddresses = 16;

std::string text_in(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return "";
  return std::string(cut_to(found->get_ref<const std::string&>(), kMaxText));
}

template <class Integer>
Integer number_in(const Json& object, const char* key, Integer otherwise) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return otherwise;
  const auto value = found->get<std::int64_t>();
  const bool fits = value >= std::numeric_limits<Integer>::min() && value <= std::numeric_limits<Integer>::max();
  return fits ? static_cast<Integer>(value) : otherwise;
}

// Calls `take` for the first `limit` objects of the list.
template <class Take>
void for_each_in(const Json& object, const char* key, std::size_t limit, Take take) {
  const auto list = object.find(key);
  if (list == object.end() || !list->is_array()) return;
  for (const Json& one : *list) {
    if (limit-- == 0) return;
    if (one.is_object()) take(one);
  }
}

NodeReport report_in(const Json& object) {
  NodeReport report{.host = text_in(object, "host"), .port = number_in<std::uint16_t>(object, "port", 0)};
  if (const int rank = number_in(object, "rank", -1); rank >= 0) report.rank = rank;
  for_each_in(object, "facts", kMaxFacts, [&](const Json& one) { report.facts[text_in(one, "name")] = text_in(one, "value"); });
  const auto lines = object.find("checks");
  if (lines == object.end() || !lines->is_string()) return report;
  if (auto checks = checks_of_json_lines(lines->get_ref<const std::string&>())) {
    report.checks = *std::move(checks);
    if (report.checks.size() > kMaxChecks) report.checks.resize(kMaxChecks);
  }
  return report;
}

PeerList peers_in(const Json& object) {
  PeerList list;
  for_each_in(object, "peers", kMaxPeers, [&](const Json& one) {
    list.peers.push_back({.id = number_in(one, "id", 0),
                          .host = text_in(one, "host"),
                          .address = text_in(one, "address"),
                          .port = number_in<std::uint16_t>(one, "port", 0)});
  });
  return list;
}

PeerResults results_in(const Json& object) {
  PeerResults results;
  for_each_in(object, "results", kMaxPeers, [&](const Json& one) {
    PeerResult result{.id = number_in(one, "id", -1),
                      .name_problem = text_in(one, "name_problem"),
                      .connect_problem = text_in(one, "connect_problem")};
    for_each_in(one, "addresses", kMaxAddresses,
                [&](const Json& address) { result.addresses.push_back(text_in(address, "address")); });
    results.results.push_back(std::move(result));
  });
  return results;
}

Json json_of(const NodeReport& report) {
  Json facts = Json::array();
  for (const auto& [name, value] : report.facts) facts.push_back({{"name", name}, {"value", value}});
  return {{"type", "report"}, {"host", report.host}, {"rank", report.rank.value_or(-1)},
          {"facts", facts},   {"port", report.port}, {"checks", json_lines_of(report.checks)}};
}

Json json_of(const PeerList& list) {
  Json peers = Json::array();
  for (const NodePeer& one : list.peers) {
    peers.push_back({{"id", one.id}, {"host", one.host}, {"address", one.address}, {"port", one.port}});
  }
  return {{"type", "peers"}, {"peers", peers}};
}

Json json_of(const PeerResults& list) {
  Json results = Json::array();
  for (const PeerResult& one : list.results) {
    Json addresses = Json::array();
    for (const std::string& address : one.addresses) addresses.push_back({{"address", address}});
    results.push_back({{"id", one.id},
                       {"addresses", addresses},
                       {"name_problem", one.name_problem},
                       {"connect_problem", one.connect_problem}});
  }
  return {{"type", "results"}, {"results", results}};
}

}  // namespace

std::string encode(const NodeMessage& message) {
  const Overloaded convert{
      [](const ClockQuery&) {
        return Json{{"type", "clock-query"}};
      },
      [](const ClockReading& reading) {
        return Json{{"type", "clock"}, {"time_ns", reading.time_ns}};
      },
      [](const GroupResult& result) {
        return Json{{"type", "result"}, {"errors", result.errors}, {"warnings", result.warnings}, {"host", result.host}};
      },
      [](const NodeRefusal& refusal) {
        return Json{{"type", "refusal"}, {"why", refusal.why}};
      },
      [](const auto& other) { return json_of(other); }};
  // Host names and the output of programs may contain bytes that are not UTF-8.
  return std::visit(convert, message).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<NodeMessage> decode(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  const std::string type = text_in(object, "type");
  if (type == "report") return report_in(object);
  if (type == "clock-query") return ClockQuery{};
  if (type == "clock") return ClockReading{number_in<std::int64_t>(object, "time_ns", 0)};
  if (type == "peers") return peers_in(object);
  if (type == "results") return results_in(object);
  if (type == "result")
    return GroupResult{number_in(object, "errors", 0), number_in(object, "warnings", 0), text_in(object, "host")};
  if (type == "refusal") return NodeRefusal{text_in(object, "why")};
  return std::nullopt;
}

}  // namespace ddprun::doctor
