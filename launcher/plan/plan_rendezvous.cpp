// Implementation of plan_rendezvous.hpp. One function reads and checks each option.
#include "launcher/plan/plan_rendezvous.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "common/base/error.hpp"
#include "common/base/rounding.hpp"
#include "common/base/split.hpp"
#include "common/base/suggest.hpp"
#include "launcher/options/host_and_port.hpp"
#include "launcher/options/parse_number.hpp"

namespace ddprun {
namespace {

constexpr int kMaxNodeCount = 100'000;
constexpr int kC10dPort = 29400;
constexpr double kMaxSeconds = 1e7;

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

// These options configure torchrun's store, which ddprun does not use. A value that torchrun refuses is an error here too. If
// the value is valid, ddprun only prints a note that the option has no effect.
constexpr std::array<std::string_view, 3> kCheckedOnly{"close_timeout", "keep_alive_interval", "read_timeout"};

std::string without_effect(const std::string& key) {
  return "--rdzv-conf: " + key + " has no effect: it configures torchrun's rendezvous store, which ddprun does not use";
}

RendezvousPlan::Backend backend_of(const Setting& setting) {
  if (setting.value == "static") return RendezvousPlan::Backend::kStatic;
  if (setting.value == "c10d") return RendezvousPlan::Backend::kC10d;
  if (setting.value == "etcd" || setting.value == "etcd-v2") {
    refuse("rdzv-backend", setting,
           "static or c10d (ddprun needs no etcd server: use --rdzv-backend c10d, and name a machine of the job in "
           "--rdzv-endpoint)");
  }
  refuse("rdzv-backend", setting, "static or c10d");
}

void read_node_counts(const Setting& setting, RendezvousPlan& plan) {
  const std::string_view text = setting.value;
  const std::size_t colon = text.find(':');
  const auto low = parse_whole(text.substr(0, colon));
  const auto high = colon == std::string_view::npos ? low : parse_whole(text.substr(colon + 1));
  if (!low || !high || *low < 1 || *high < *low || *high > kMaxNodeCount) {
    refuse("nnodes", setting, "N or MIN:MAX with 1 <= MIN <= MAX");
  }
  plan.min_nodes = static_cast<int>(*low);
  plan.max_nodes = static_cast<int>(*high);
  if (!plan.standalone) return;
  if (plan.min_nodes > 1) {
    throw UsageError("--standalone is for one machine, but --nnodes is " + setting.value + " (" + setting.source +
                     "); remove one of the two options");
  }
  plan.max_nodes = 1;  // other nodes cannot know the port, so only one node is possible
}

void read_node_rank(const Settings& settings, RendezvousPlan& plan) {
  const Setting* setting = settings.find("node-rank");
  if (setting == nullptr || plan.standalone || plan.backend != RendezvousPlan::Backend::kStatic) return;
  const auto rank = parse_whole(setting->value);
  if (!rank || *rank < 0 || *rank >= plan.max_nodes) {
    refuse("node-rank", *setting,
           plan.max_nodes == 1 ? "0, since the job has one machine"
                               : "a number from 0 to " + std::to_string(plan.max_nodes - 1) + ", one less than --nnodes");
  }
  plan.node_rank = static_cast<int>(*rank);
}

// Reads LOW-HIGH. The lowest port is the rendezvous port, so all nodes must have the same value.
void read_port_range(const Setting& setting, RendezvousPlan& plan) {
  const std::string_view text = without_spaces_around(setting.value);
  const std::size_t dash = text.find('-');
  const auto low = parse_whole(text.substr(0, dash));
  const auto high = dash == std::string_view::npos ? std::nullopt : parse_whole(text.substr(dash + 1));
  // the rendezvous port, a listener of the agent, and two ports between which MASTER_PORT alternates
  constexpr std::int64_t kMinPorts = 4;
  if (!low || !high || *low < 1 || *high > 65535 || *high - *low + 1 < kMinPorts) {
    refuse("port-range", setting,
           "LOW-HIGH with at least " + std::to_string(kMinPorts) + " ports from 1 to 65535, such as 29500-29599");
  }
  plan.port_range = {static_cast<int>(*low), static_cast<int>(*high)};
}

// Returns true if the text may be a host name or an address. Returns false, for example, if the text contains a space or a
// slash.
bool may_be_host(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c >= 0x80 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
}

// Reads etcd://HOST:PORT, the address of the arbiter (the third voter for two nodes). The arbiter has an effect only if either
// of two nodes may continue alone, so other values of --nnodes are refused.
void read_arbiter(const Setting& setting, RendezvousPlan& plan) {
  constexpr const char* kExpected = "etcd://HOST:PORT, such as etcd://10.0.0.5:2379";
  constexpr std::string_view kScheme = "etcd://";
  std::string_view text = without_spaces_around(setting.value);
  if (text.starts_with("etcds://") || text.starts_with("https://")) {
    refuse("arbiter", setting, std::string(kExpected) + " (ddprun connects to etcd without TLS: use a port with plain HTTP)");
  }
  if (!text.starts_with(kScheme)) refuse("arbiter", setting, kExpected);
  text.remove_prefix(kScheme.size());
  if (text.ends_with('/')) text.remove_suffix(1);
  if (text.find('@') != std::string_view::npos) {
    refuse("arbiter", setting,
           std::string(kExpected) + " (ddprun sends no user name to etcd: use a server without authentication)");
  }
  const auto there = parse_host_and_port(text);
  if (!there || there->port.value_or(0) < 1 || !may_be_host(there->host)) refuse("arbiter", setting, kExpected);
  if (plan.min_nodes > 1 || plan.max_nodes < 2) {
    throw UsageError(
        "--arbiter decides which of two nodes continues alone, so it needs --nnodes 1:MAX with MAX above 1, but --nnodes is " +
        std::to_string(plan.min_nodes) + ":" + std::to_string(plan.max_nodes) + " (" + setting.source +
        "); remove --arbiter, or change --nnodes");
  }
  plan.arbiter_host = there->host;
  plan.arbiter_port = *there->port;
}

void read_endpoint(const Setting& setting, RendezvousPlan& plan) {
  const auto there = parse_host_and_port(setting.value);
  if (const auto form = with_brackets(setting.value); !there && form)
    refuse("rdzv-endpoint", setting, "an IPv6 address in brackets before the port, " + *form);
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
  throw UsageError("--rdzv-conf: " + key + " must be " + expected + ", but is '" + value + "' (" + conf.source + ")");
}

std::chrono::milliseconds duration_of(const Setting& conf, const std::string& key, const std::string& value) {
  const auto seconds = parse_decimal(value);
  if (!seconds || *seconds <= 0 || *seconds > kMaxSeconds) refuse_key(conf, key, value, "a number of seconds above 0");
  return std::chrono::milliseconds(std::max(1LL, round_to_nearest(*seconds * 1000)));
}

bool parse_truth(const Setting& conf, const std::string& key, const std::string& value) {
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
      plan.is_host = parse_truth(conf, key, value);
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
  if (text.empty()) return pairs;
  for (const std::string_view entry : split(text, ',')) {
    const std::size_t equals = entry.find('=');
    const std::string_view key = without_spaces_around(entry.substr(0, equals));
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : without_spaces_around(entry.substr(equals + 1));
    if (key.empty() || value.empty()) refuse("rdzv-conf", setting, "KEY=VALUE,KEY=VALUE");
    pairs.emplace_back(key, value);
  }
  return pairs;
}

RendezvousChoice resolve_rendezvous(const Settings& settings) {
  RendezvousChoice choice;
  RendezvousPlan& plan = choice.plan;
  plan.standalone = settings.flag("standalone");
  // --standalone implies c10d. As in torchrun, --rdzv-backend and --rdzv-endpoint have no effect with it.
  plan.backend = plan.standalone ? RendezvousPlan::Backend::kC10d : backend_of(*settings.find("rdzv-backend"));
  read_node_counts(*settings.find("nnodes"), plan);
  read_node_rank(settings, plan);
  plan.local_addr = settings.text("local-addr");
  if (const Setting* range = settings.find("port-range"); range != nullptr && !range->value.empty())
    read_port_range(*range, plan);
  plan.force_new_job = settings.flag("force-new-job");
  plan.exclude_failing_nodes = settings.flag("exclude-failing-nodes");
  if (plan.exclude_failing_nodes && plan.min_nodes == plan.max_nodes) {
    choice.warnings.push_back("--exclude-failing-nodes has no effect: the job needs all of its nodes; use --nnodes MIN:MAX");
  }
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
