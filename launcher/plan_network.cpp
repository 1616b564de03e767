// See plan_network.hpp.
#include "launcher/plan_network.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

#include "common/error.hpp"
#include "common/suggest.hpp"

namespace ddprun {
namespace {

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

bool to_int(std::string_view text, int& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return !text.empty() && error == std::errc() && stop == text.data() + text.size();
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

void check_one_node(const Settings& settings) {
  const Setting nnodes = *settings.find("nnodes");
  const std::size_t colon = nnodes.value.find(':');
  const std::string_view text = nnodes.value;
  int low = 0, high = 0;
  if (!to_int(text.substr(0, colon), low) || !to_int(colon == std::string::npos ? text : text.substr(colon + 1), high) ||
      low < 1 || high < low) {
    refuse("nnodes", nnodes, "N or MIN:MAX with 1 <= MIN <= MAX");
  }
  if (high != 1) {
    throw UsageError("jobs on many machines are not in this version: --nnodes is " + nnodes.value + " (" + nnodes.source +
                     "); run it on one machine with --nnodes 1");
  }
  const Setting rank = *settings.find("node-rank");
  int number = 0;
  if (!to_int(rank.value, number) || number != 0) refuse("node-rank", rank, "0, since there is one machine");
}

struct Endpoint {
  std::string host;
  int port = 0;
};

Endpoint parse_endpoint(const Setting& setting) {
  const std::string& text = setting.value;
  Endpoint endpoint{text, 0};
  const bool bracketed = text.starts_with('[');
  const std::size_t end = bracketed ? text.find(']') : std::string::npos;
  if (bracketed && end == std::string::npos) refuse("rdzv-endpoint", setting, "HOST[:PORT]");
  if (bracketed) endpoint.host = text.substr(1, end - 1);
  const std::size_t colon = bracketed ? (end + 1 < text.size() ? end + 1 : std::string::npos) : text.find(':');
  const bool bare_ipv6 = !bracketed && colon != std::string::npos && text.find(':', colon + 1) != std::string::npos;
  if (colon == std::string::npos || bare_ipv6) return endpoint;
  if (!bracketed) endpoint.host = text.substr(0, colon);
  if (text[colon] != ':' || endpoint.host.empty() || !to_int(std::string_view(text).substr(colon + 1), endpoint.port) ||
      endpoint.port < 0 || endpoint.port > 65535) {
    refuse("rdzv-endpoint", setting, "HOST[:PORT] with a port from 0 to 65535");
  }
  return endpoint;
}

std::string new_uuid() {
  std::string uuid;
  std::ifstream("/proc/sys/kernel/random/uuid") >> uuid;
  return uuid.empty() ? "standalone" : uuid;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> parse_rdzv_conf(const Setting& setting) {
  std::string_view text = trimmed(setting.value);
  if (text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front()) {
    text = text.substr(1, text.size() - 2);
  }
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    const std::size_t equals = entry.find('=');
    const std::string_view key = trimmed(entry.substr(0, equals));
    const std::string_view value = equals == std::string_view::npos ? "" : trimmed(entry.substr(equals + 1));
    if (key.empty() || value.empty() || comma == text.size() - 1) refuse("rdzv-conf", setting, "KEY=VALUE,KEY=VALUE");
    pairs.emplace_back(key, value);
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  return pairs;
}

Network resolve_network(const Settings& settings, bool train, const std::string& title) {
  check_one_node(settings);
  Network network;
  const bool standalone = settings.flag("standalone");
  const Setting backend = *settings.find("rdzv-backend");
  if (backend.value != "static" && backend.value != "c10d") {
    refuse("rdzv-backend", backend, "static or c10d (etcd is not needed: agents meet without it)");
  }
  const bool is_static = backend.value == "static" && !standalone;

  if (const Setting* conf = settings.find("rdzv-conf"); conf != nullptr && !conf->value.empty()) {
    for (const auto& [key, value] : parse_rdzv_conf(*conf)) {
      if (std::find(kConfKeys.begin(), kConfKeys.end(), key) == kConfKeys.end()) {
        network.notes.push_back("--rdzv-conf: unknown key '" + key + "' has no effect." + did_you_mean(key, kConfKeys));
      }
    }
  }

  network.master_addr = settings.text("master-addr");
  network.master_source = settings.find("master-addr")->source;
  const bool has_endpoint = !settings.text("rdzv-endpoint").empty() && !standalone;
  if (has_endpoint) {
    const Setting& setting = *settings.find("rdzv-endpoint");
    const Endpoint endpoint = parse_endpoint(setting);
    if (is_static) {
      network.master_addr = endpoint.host;
      network.master_port = endpoint.port != 0 ? endpoint.port : 29500;
      network.master_source = network.port_source = setting.source;
    }
  }
  if (settings.find("master-port") != nullptr && network.port_source.empty() && !standalone) {
    network.master_port = static_cast<int>(settings.integer("master-port", 0, 65535));
    network.port_source = settings.find("master-port")->source;
  }
  if (network.port_source.empty()) {
    network.master_port = is_static && !train ? 29500 : 0;
    network.port_source = standalone ? "--standalone" : "default";
  }

  const Setting* id = settings.find("rdzv-id");
  if (standalone) {
    network.run_id = new_uuid();
    network.run_id_source = "--standalone";
  } else if (id != nullptr && !id->value.empty()) {
    network.run_id = id->value;
    network.run_id_source = id->source;
  } else {
    network.run_id = train ? title : "none";
    network.run_id_source = train ? "name in the config" : "default";
  }
  return network;
}

}  // namespace ddprun
