// Implementation of plan_rendezvous.hpp: one reader for each option.
#include "launcher/plan/plan_rendezvous.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "common/base/error.hpp"
#include "common/base/nearest.hpp"
#include "common/base/suggest.hpp"
#include "launcher/options/host_and_port.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

constexpr int kMostNodes = 100'000;
constexpr int kC10dPort = 29400;
constexpr double kLongestSeconds = 1e7;

constexpr std::array<std::string_view, 12> kConfKeys{"join_timeout",
                                                     "last_call_timeout",
                                                     "close_timeout",
                                                     "heartbeat_timeout",
                                                     "keep_alive_interval",
                                                     "keep_alive_max_attempt",
                                                     "read_timeout",
                                                     "is_host",
                                                     "store_type",
                                                     "rank",
                                                     "timeout",
                                                     "use_libuv"};

// Options of torchrun's store, which ddprun does not have. Values that torchrun would refuse are refused; other values get a
// note that they have no effect.
constexpr std::array<std::string_view, 3> kCheckedOnly{"close_timeout", "keep_alive_interval", "read_timeout"};

std::string without_effect(const std::string& key) {
  return "--rdzv-conf: " + key + " has no effect here: agents meet without a store";
}

RendezvousPlan::Backend backend_of(const Setting& setting) {
  if (setting.value == "static") return RendezvousPlan::Backend::kStatic;
  if (setting.value == "c10d") return RendezvousPlan::Backend::kC10d;
  if (setting.value == "etcd" || setting.value == "etcd-v2") {
    refuse("rdzv-backend", setting,
           "static or c10d: agents meet without an etcd server, so write --rdzv-backend c10d and name a machine of the job in "
           "--rdzv-endpoint");
  }
  refuse("rdzv-backend", setting, "static or c10d");
}

void read_node_counts(const Setting& setting, RendezvousPlan& plan) {
  const std::string_view text = setting.value;
  const std::size_t colon = text.find(':');
  const auto low = parse_whole(text.substr(0, colon));
  const auto high = colon == std::string_view::npos ? low : parse_whole(text.substr(colon + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > kMostNodes) {
    refuse("nnodes", setting, "N or MIN:MAX with 1 <= MIN <= MAX");
  }
  plan.min_nodes = static_cast<int>(*low);
  plan.max_nodes = static_cast<int>(*high);
  if (!plan.standalone) return;
  if (plan.min_nodes > 1) {
    throw UsageError("--standalone is for one machine, but --nnodes is " + setting.value + " (" + setting.source +
                     "); leave one of them out");
  }
  plan.max_nodes = 1;  // no other node can know the port, so the job has one node
}

void read_node_rank(const Settings& settings, RendezvousPlan& plan) {
  const Setting* setting = settings.find("node-rank");
  if (setting == nullptr || plan.standalone || plan.backend != RendezvousPlan::Backend::kStatic) return;
  const auto rank = parse_whole(setting->value);
  if (!rank || *rank < 0 || *rank >= plan.max_nodes) {
    refuse("node-rank", *setting,
           plan.max_nodes == 1 ? "0, since there is one machine"
                               : "a number from 0 to " + std::to_string(plan.max_nodes - 1) + ", one less than --nnodes");
  }
  plan.node_rank = static_cast<int>(*rank);
}

// Reads LOW-HIGH. All nodes must agree on the lowest port in advance, since they meet there.
void read_port_range(const Setting& setting, RendezvousPlan& plan) {
  const std::string_view text = without_spaces_around(setting.value);
  const std::size_t dash = text.find('-');
  const auto low = parse_whole(text.substr(0, dash));
  const auto high = dash == std::string_view::npos ? std::nullopt : parse_whole(text.substr(dash + 1));
  constexpr std::int64_t kFewest = 4;  // the meeting port, a listener, and two ports between which MASTER_PORT alternates
  if (!low || !high || *low < 1 || *high > 65535 || *high - *low + 1 < kFewest) {
    refuse("port-range", setting,
           "LOW-HIGH with at least " + std::to_string(kFewest) + " ports from 1 to 65535, such as 29500-29599");
  }
  plan.port_range = {static_cast<int>(*low), static_cast<int>(*high)};
}

// Whether the text may be a host name or an address. A space or a slash shows that something else was intended.
bool may_be_host(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
}

// Reads etcd://HOST:PORT. An arbiter only matters if either of two nodes may continue alone.
void read_arbiter(const Setting& setting, RendezvousPlan& plan) {
  constexpr const char* kExpected = "etcd://HOST:PORT, such as etcd://10.0.0.5:2379";
  constexpr std::string_view kScheme = "etcd://";
  std::string_view text = without_spaces_around(setting.value);
  if (text.starts_with("etcds://") || text.starts_with("https://")) {
    refuse("arbiter", setting,
           std::string(kExpected) + ": etcd is asked without TLS, so give it a port that speaks plain HTTP");
  }
  if (!text.starts_with(kScheme)) refuse("arbiter", setting, kExpected);
  text.remove_prefix(kScheme.size());
  if (text.ends_with('/')) text.remove_suffix(1);
  if (text.find('@') != std::string_view::npos) {
    refuse("arbiter", setting,
           std::string(kExpected) + ": etcd is asked without a user, so let it serve without authentication");
  }
  const auto there = parse_host_and_port(text);
  if (!there || there->port.value_or(0) < 1 || !may_be_host(there->host)) refuse("arbiter", setting, kExpected);
  if (plan.min_nodes > 1 || plan.max_nodes < 2) {
    throw UsageError(
        "--arbiter decides which of two nodes goes on alone, so it needs --nnodes 1:MAX with a MAX above 1, but --nnodes is " +
        std::to_string(plan.min_nodes) + ":" + std::to_string(plan.max_nodes) + " (" + setting.source +
        "); leave --arbiter out or let one node go on");
  }
  plan.arbiter_host = there->host;
  plan.arbiter_port = *there->port;
}

void read_endpoint(const Setting& setting, RendezvousPlan& plan) {
  const auto there = parse_host_and_port(setting.value);
  if (const auto form = with_brackets(setting.value); !there && form)
    refuse("rdzv-endpoint", setting, "an IPv6 address with a port in brackets, " + *form);
  constexpr const char* kPlace = "HOST[:PORT] with the name or address of a machine";
  if (!there) {
    const bool is_place = may_be_host(without_spaces_around(setting.value));
    refuse("rdzv-endpoint", setting, is_place ? "HOST[:PORT] with a port from 0 to 65535" : kPlace);
  }
  plan.host = there->host;
  plan.port = there->port                                        ? *there->port
              : plan.port_range.given()                          ? plan.port_range.low
              : plan.backend == RendezvousPlan::Backend::kStatic ? kStaticPort
                                                                 : kC10dPort;
  if (!may_be_host(plan.host)) refuse("rdzv-endpoint", setting, kPlace);
}

[[noreturn]] void refuse_key(const Setting& conf, const std::string& key, const std::string& value,
                             const std::string& expected) {
  throw UsageError("--rdzv-conf: " + key + " has to be " + expected + ", but is '" + value + "' (" + conf.source + ")");
}

std::chrono::milliseconds duration_of(const Setting& conf, const std::string& key, const std::string& value) {
  const auto seconds = parse_decimal(value);
  if (!seconds || *seconds <= 0 || *seconds > kLongestSeconds) refuse_key(conf, key, value, "a number of seconds above 0");
  return std::chrono::milliseconds(std::max(1LL, nearest(*seconds * 1000)));
}

bool truth_of(const Setting& conf, const std::string& key, const std::string& value) {
  std::string lower = value;
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const std::string_view yes : {"1", "true", "t", "yes", "y"}) {
    if (lower == yes) return true;
  }
  for (const std::string_view no : {"0", "false", "f", "no", "n"}) {
    if (lower == no) return false;
  }
  refuse_key(conf, key, value, "true or false");
}

void read_conf(const Setting& conf, RendezvousChoice& choice) {
  RendezvousPlan& plan = choice.plan;
  const bool is_static = plan.backend == RendezvousPlan::Backend::kStatic;
  const std::array<std::pair<std::string_view, std::chrono::milliseconds*>, 3> durations{{
      {"join_timeout", &plan.join_timeout},
      {"last_call_timeout", &plan.last_call_timeout},
      {"heartbeat_timeout", &plan.heartbeat_timeout},
  }};
  for (const auto& [key, value] : parse_rdzv_conf(conf)) {
    const auto duration =
        std::find_if(durations.begin(), durations.end(), [&, name = key](const auto& entry) { return entry.first == name; });
    if (duration != durations.end()) {
      *duration->second = duration_of(conf, key, value);
    } else if (key == "timeout" && is_static) {
      plan.join_timeout = duration_of(conf, key, value);
    } else if (key == "keep_alive_max_attempt") {
      const auto attempts = parse_whole(value);
      if (!attempts || *attempts < 1 || *attempts > 1'000'000) refuse_key(conf, key, value, "a whole number above 0");
      choice.notes.push_back(without_effect(key));
    } else if (std::find(kCheckedOnly.begin(), kCheckedOnly.end(), key) != kCheckedOnly.end()) {
      duration_of(conf, key, value);
      choice.notes.push_back(without_effect(key));
    } else if (key == "is_host") {
      plan.is_host = truth_of(conf, key, value);
    } else if (std::find(kConfKeys.begin(), kConfKeys.end(), key) != kConfKeys.end()) {
      choice.notes.push_back(without_effect(key));
    } else {
      choice.warnings.push_back("--rdzv-conf: unknown key '" + key + "' has no effect." + did_you_mean(key, kConfKeys));
    }
  }
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_rdzv_conf(const Setting& setting) {
  std::string_view text = without_spaces_around(setting.value);
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    const std::size_t equals = entry.find('=');
    const std::string_view key = without_spaces_around(entry.substr(0, equals));
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : without_spaces_around(entry.substr(equals + 1));
    if (key.empty() || value.empty() || comma == text.size() - 1) refuse("rdzv-conf", setting, "KEY=VALUE,KEY=VALUE");
    pairs.emplace_back(key, value);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return pairs;
}

RendezvousChoice resolve_rendezvous(const Settings& settings) {
  RendezvousChoice choice;
  RendezvousPlan& plan = choice.plan;
  plan.standalone = settings.flag("standalone");
  // --standalone determines the backend, and torchrun then ignores the other options about it.
  plan.backend = plan.standalone ? RendezvousPlan::Backend::kC10d : backend_of(*settings.find("rdzv-backend"));
  read_node_counts(*settings.find("nnodes"), plan);
  read_node_rank(settings, plan);
  plan.local_addr = settings.text("local-addr");
  if (const Setting* range = settings.find("port-range"); range != nullptr && !range->value.empty())
    read_port_range(*range, plan);
  plan.force_new_job = settings.flag("force-new-job");
  if (const Setting* arbiter = settings.find("arbiter"); arbiter != nullptr && !arbiter->value.empty())
    read_arbiter(*arbiter, plan);
  if (const std::string endpoint = settings.text("rdzv-endpoint"); !endpoint.empty() && !plan.standalone) {
    choice.endpoint_given = true;
    read_endpoint(*settings.find("rdzv-endpoint"), plan);
  }
  if (const Setting* conf = settings.find("rdzv-conf"); conf != nullptr && !conf->value.empty()) read_conf(*conf, choice);
  return choice;
}

}  // namespace ddprun
