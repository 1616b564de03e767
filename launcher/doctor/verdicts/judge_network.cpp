#include "launcher/doctor/verdicts/judge_network.hpp"

#include <algorithm>

#include "common/base/split.hpp"

namespace ddprun::doctor {
namespace {

bool is_loopback(std::string_view address) {
  return address.starts_with("127.") || address == "::1";
}

bool is_loopback_only(const std::vector<std::string>& addresses) {
  return !addresses.empty() && std::ranges::all_of(addresses, is_loopback);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

std::string names_of(const InterfaceFacts& facts) {
  std::vector<std::string> names;
  for (const Interface& one : facts.interfaces) names.push_back(one.name + (one.is_up ? "" : " (down)"));
  return names.empty() ? "none" : joined(names);
}

std::string remedy_for(const std::string& variable, const InterfaceFacts& facts) {
  return "set " + variable + " to an interface that exists and is up, or unset it; found: " + names_of(facts);
}

// GLOO_SOCKET_IFNAME contains a list of exact interface names. Gloo throws at the first name that it cannot use.
void judge_gloo_variable(Checks& checks, const InterfaceFacts& facts, const JobNeeds& needs) {
  const std::string variable = "GLOO_SOCKET_IFNAME";
  for (const std::string_view name : split(*facts.gloo, ',')) {
    const auto one = std::ranges::find(facts.interfaces, name, &Interface::name);
    const std::string text = variable + "=" + *facts.gloo + ": ";
    if (one == facts.interfaces.end()) {
      checks.push_back(
          error("interface", text + "this machine has no interface " + std::string(name), remedy_for(variable, facts)));
    } else if (!one->is_up || !one->has_address) {
      checks.push_back(
          error("interface", text + one->name + (one->is_up ? " has no address" : " is down"), remedy_for(variable, facts)));
    } else if (one->is_loopback && needs.many_nodes()) {
      checks.push_back(
          error("interface", text + "the loopback interface cannot reach the other nodes", remedy_for(variable, facts)));
    }
  }
}

// NCCL_SOCKET_IFNAME contains prefixes of interface names. NCCL fails if no usable interface is selected. If the machine has
// no GPU, no worker uses NCCL, but the same variable may have been set for nodes with GPUs.
void judge_nccl_variable(Checks& checks, const InterfaceFacts& facts, const JobNeeds& needs) {
  const std::string variable = "NCCL_SOCKET_IFNAME", text = variable + "=" + *facts.nccl + " ";
  std::vector<Interface> selected;
  for (const Interface& one : facts.interfaces) {
    if (nccl_selects(*facts.nccl, one.name)) selected.push_back(one);
  }
  std::string problem;
  if (selected.empty()) {
    problem = "selects no interface of this machine";
  } else if (std::ranges::none_of(selected, [](const Interface& one) { return one.is_up && one.has_address; })) {
    problem = "selects only interfaces that are down or have no address";
  } else if (needs.many_nodes() && std::ranges::all_of(selected, &Interface::is_loopback)) {
    problem = "selects only the loopback interface, which cannot reach the other nodes";
  }
  if (problem.empty()) return;
  const bool is_used = needs.gpus == JobNeeds::Gpus::kRequired;
  checks.push_back(is_used ? error("interface", text + problem, remedy_for(variable, facts))
                           : warning("interface", text + problem, remedy_for(variable, facts)));
}

// NCCL falls back to TCP without a message if it finds no InfiniBand port, and the job is then many times slower.
void judge_infiniband(Checks& checks, const InterfaceFacts& facts, const JobNeeds& needs) {
  if (facts.infiniband.empty()) return;
  std::vector<std::string> devices;
  bool any_active = false, any_selected = false;
  for (const InfinibandDevice& device : facts.infiniband) {
    devices.push_back(device.name);
    any_active = any_active || device.active_ports > 0;
    any_selected = any_selected || !facts.nccl_hca || nccl_selects(*facts.nccl_hca, device.name);
  }
  if (!any_selected) {
    checks.push_back(warning(
        "infiniband",
        "NCCL_IB_HCA=" + *facts.nccl_hca + " selects no device of this machine (" + joined(devices) + "): NCCL would use TCP",
        "set NCCL_IB_HCA to one of these devices, or remove it"));
  } else if (!any_active && needs.many_nodes()) {
    checks.push_back(warning("infiniband", "no port of " + joined(devices) + " is active: NCCL would use TCP",
                             "check the cables, the switch and the subnet manager: ibstat"));
  } else {
    checks.push_back(ok("infiniband", joined(devices)));
  }
}

}  // namespace

bool nccl_selects(std::string_view selection, std::string_view name) {
  const bool excludes = selection.starts_with('^');
  if (excludes) selection.remove_prefix(1);
  const bool exact = selection.starts_with('=');
  if (exact) selection.remove_prefix(1);
  for (const std::string_view entry : split(selection, ',')) {
    const std::string_view wanted = entry.substr(0, entry.find(':'));
    if (!wanted.empty() && (exact ? name == wanted : name.starts_with(wanted))) return !excludes;
  }
  return excludes;
}

Checks judge_host_name(const NameFacts& facts, const std::optional<std::string>& gloo_interface, const JobNeeds& needs) {
  const std::string found =
      facts.name + (facts.addresses.empty() ? " has no address" : " has the address " + joined(facts.addresses));
  const bool name_is_used = needs.many_nodes() && needs.interface.empty() && !gloo_interface;
  if (name_is_used && (facts.addresses.empty() || is_loopback_only(facts.addresses))) {
    const std::string use = facts.addresses.empty()
                                ? ", but in a job on several nodes Gloo gives the address of the host name to the other nodes"
                                : ": in a job on several nodes, Gloo gives this address to the other nodes";
    return {warning("host-name", "the host name " + found + use,
                    "select the network with --interface NAME, or correct the host name in /etc/hosts or DNS")};
  }
  return {ok("host-name", found)};
}

bool can_never_resolve(std::string_view name) {
  constexpr std::size_t kMaxName = 253, kMaxLabel = 63;
  if (name.ends_with('.')) name.remove_suffix(1);  // the final dot stands for the root of DNS
  if (name.empty() || name.size() > kMaxName) return true;
  const std::vector<std::string_view> labels = split(name, '.');
  const auto is_letter_or_digit = [](unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
  };
  const auto is_malformed = [&](std::string_view label) {
    return label.empty() || label.size() > kMaxLabel || label.front() == '-' || label.back() == '-' ||
           !std::ranges::all_of(label, [&](char c) { return is_letter_or_digit(c) || c == '-' || c == '_'; });
  };
  if (std::ranges::any_of(labels, is_malformed)) return true;
  // No top-level domain consists of digits, so a user who writes such a name means an address.
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  return std::ranges::all_of(labels.back(), is_digit) || labels.back() == "invalid";
}

Checks judge_meeting_host(const NameFacts& facts, const JobNeeds& needs) {
  const std::string text = "the address of the first node, " + facts.name + ", ";
  if (facts.addresses.empty()) {
    const std::string options = "--master-addr or --rdzv-endpoint (variables PET_MASTER_ADDR, PET_RDZV_ENDPOINT)";
    if (can_never_resolve(facts.name)) {
      return {error("master-address", text + "never resolves: it is neither an address nor a name that DNS can have",
                    "correct " + options)};
    }
    return {warning("master-address", text + "does not resolve yet",
                    "a start waits up to " + std::to_string(needs.join_timeout.count()) +
                        " s for the first node (--rdzv-conf join_timeout=SECONDS). If the name is wrong, correct " + options +
                        ", or add the name to DNS or /etc/hosts")};
  }
  if (needs.many_nodes() && is_loopback_only(facts.addresses)) {
    return {warning("master-address",
                    text + "is a loopback address, which other machines cannot reach: " + joined(facts.addresses),
                    "use an address of the first node in a network that all nodes share")};
  }
  if (needs.is_first == true && !facts.is_local) {
    return {warning("master-address",
                    text + "does not belong to this machine (" + joined(facts.addresses) +
                        "), but this node is configured as the first node",
                    "set --master-addr to an address of this machine, or give rank 0 to the node with that address; ignore "
                    "this warning if the address is forwarded to this machine")};
  }
  return {ok("master-address", facts.name + " has the address " + joined(facts.addresses))};
}

Checks judge_interfaces(const InterfaceFacts& facts, const JobNeeds& needs) {
  Checks checks;
  if (facts.gloo) judge_gloo_variable(checks, facts, needs);
  if (facts.nccl) judge_nccl_variable(checks, facts, needs);
  const bool reaches_others = std::ranges::any_of(
      facts.interfaces, [](const Interface& one) { return one.is_up && one.has_address && !one.is_loopback; });
  if (needs.many_nodes() && !reaches_others) {
    checks.push_back(error("interface", "no network interface is up, except the loopback interface: " + names_of(facts),
                           "connect this machine to the network of the other nodes: ip addr"));
  }
  if (checks.empty()) checks.push_back(ok("interface", names_of(facts)));
  judge_infiniband(checks, facts, needs);
  return checks;
}

}  // namespace ddprun::doctor
