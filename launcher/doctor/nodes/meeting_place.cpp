#include "launcher/doctor/nodes/meeting_place.hpp"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "launcher/doctor/verdicts/judge_network.hpp"
#include "launcher/machine/local_address.hpp"
#include "launcher/network/network_start.hpp"

namespace ddprun::doctor {
namespace {

using Json = nlohmann::json;

DoctorPlace::Lead lead_in(const RendezvousPlan& plan) {
  using Lead = rendezvous::NodeShellSettings::Lead;
  switch (lead_of(plan)) {
    case Lead::kNo:
      return DoctorPlace::Lead::kNo;
    case Lead::kIfPortIsFree:
      return DoctorPlace::Lead::kIfPortIsFree;
    case Lead::kYes:
      return DoctorPlace::Lead::kYes;
  }
  return DoctorPlace::Lead::kNo;
}

}  // namespace

DoctorPlace meeting_place_of(const Plan& plan, std::chrono::milliseconds wait) {
  const RendezvousPlan& meeting = plan.rendezvous;
  return {.lead = lead_in(meeting),
          .host = meeting.host,
          .port = meeting.port,
          .local_address = meeting.local_addr.empty() ? "" : numeric_address(meeting.local_addr),
          .min_nodes = meeting.min_nodes,
          .max_nodes = meeting.max_nodes,
          .rank = meeting.node_rank.value_or(-1),
          .ports = meeting.port_range,
          .wait = wait,
          .host_can_resolve = meeting.host.empty() || is_number(meeting.host) || !can_never_resolve(meeting.host),
          .run_dir = plan.run_dir.string(),
          .token_file = plan.token_file.string()};
}

std::string text_of(const DoctorPlace& place) {
  const Json json{{"lead", static_cast<int>(place.lead)},
                  {"host", place.host},
                  {"port", place.port},
                  {"local_address", place.local_address},
                  {"min_nodes", place.min_nodes},
                  {"max_nodes", place.max_nodes},
                  {"rank", place.rank},
                  {"low", place.ports.low},
                  {"high", place.ports.high},
                  {"wait_ms", place.wait.count()},
                  {"host_can_resolve", place.host_can_resolve},
                  {"run_dir", place.run_dir},
                  {"token_file", place.token_file}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<DoctorPlace> meeting_place_in(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    const auto word = [&](const char* key) { return json.at(key).get<std::string>(); };
    const auto number = [&](const char* key) { return json.at(key).get<int>(); };
    return DoctorPlace{.lead = static_cast<DoctorPlace::Lead>(number("lead")),
                       .host = word("host"),
                       .port = number("port"),
                       .local_address = word("local_address"),
                       .min_nodes = number("min_nodes"),
                       .max_nodes = number("max_nodes"),
                       .rank = number("rank"),
                       .ports = {.low = number("low"), .high = number("high")},
                       .wait = std::chrono::milliseconds(json.at("wait_ms").get<std::int64_t>()),
                       .host_can_resolve = json.at("host_can_resolve").get<bool>(),
                       .run_dir = word("run_dir"),
                       .token_file = word("token_file")};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ddprun::doctor
