#include "launcher/doctor/nodes/compare_nodes.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "common/base/numbers.hpp"
#include "common/base/rounding.hpp"

namespace ddprun::doctor {
namespace {

constexpr std::size_t kMaxNames = 8;
constexpr std::size_t kMaxGroups = 6;
constexpr double kMaxOffsetSeconds = 1;

using Names = std::vector<std::string>;

// "n0, n1 and 62 others"
std::string listed(const Names& names) {
  std::string text;
  const std::size_t shown = names.size() > kMaxNames + 1 ? kMaxNames : names.size();
  for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (shown < names.size()) text += " and " + std::to_string(names.size() - shown) + " others";
  return text;
}

struct Group {
  std::string value;
  Names nodes;
};

// The nodes by value, the largest group first. Groups of the same size keep the order of their first nodes.
std::vector<Group> groups_of(const std::vector<ComparedNode>& nodes, const std::string& name) {
  std::vector<Group> groups;
  for (const ComparedNode& node : nodes) {
    const auto found = node.facts.find(name);
    if (found == node.facts.end()) continue;
    auto group = std::ranges::find(groups, found->second, &Group::value);
    if (group == groups.end()) group = groups.insert(groups.end(), Group{found->second, {}});
    group->nodes.push_back(node.label);
  }
  std::ranges::stable_sort(groups, std::ranges::greater(), [](const Group& group) { return group.nodes.size(); });
  return groups;
}

std::string text_of(const std::vector<Group>& groups) {
  std::string text;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i == kMaxGroups) return text + "; and " + std::to_string(groups.size() - i) + " other values";
    text += (i == 0 ? "" : "; ") + groups[i].value + " on " + listed(groups[i].nodes);
  }
  return text;
}

// A fact that must be equal on all nodes.
struct SameRule {
  const char* fact;
  const char* check;
  const char* subject;
  CheckVerdict verdict;
  const char* remedy;
};
constexpr std::array kSameRules{
    SameRule{"protocol", "same-protocol", "the protocol between agents", CheckVerdict::kError,
             "install the same ddprun on all nodes: ddprun version shows both the version and the protocol"},
    SameRule{"ddprun", "same-ddprun", "the version of ddprun", CheckVerdict::kWarning,
             "install the same ddprun on all nodes: ddprun version"},
    SameRule{"libtorch", "same-libtorch", "the LibTorch of ddptrain", CheckVerdict::kError,
             "install the same ddptrain on all nodes: ddprun version shows which one a node has"},
    SameRule{"python", "same-python", "the version of Python", CheckVerdict::kWarning,
             "use the same container image or virtual environment on all nodes"},
    SameRule{"torch", "same-torch", "the version of torch", CheckVerdict::kError,
             "install the same torch on all nodes, since versions of its process groups cannot be mixed"},
    SameRule{"job", "same-job", "the run id of the job", CheckVerdict::kError,
             "give all nodes the same --rdzv-id, or the same name in the config"},
    SameRule{"config", "same-config", "the digest of the config", CheckVerdict::kError,
             "copy the same train.json to all nodes, and use the same overrides"},
    SameRule{"nnodes", "same-nnodes", "--nnodes", CheckVerdict::kError, "give all nodes the same --nnodes (PET_NNODES)"},
    SameRule{"driver", "same-driver", "the NVIDIA driver", CheckVerdict::kWarning, "install the same driver on all nodes"},
    SameRule{"gpu-model", "same-gpu-model", "the model of the GPUs", CheckVerdict::kWarning,
             "select nodes with the same GPUs, or accept that each step lasts as long as on the slowest GPU"},
    SameRule{"gpus", "same-gpus", "the number of usable GPUs", CheckVerdict::kWarning,
             "check the node with fewer GPUs: nvidia-smi, CUDA_VISIBLE_DEVICES and the scheduler's allocation"},
    SameRule{"mtu", "same-mtu", "the MTU of the interface between the nodes", CheckVerdict::kWarning,
             "set the same MTU on all nodes and switches: ip link; with different MTUs, only large messages hang"}};

std::string everywhere(std::size_t nodes) {
  return " on all " + std::to_string(nodes) + " nodes";
}

Checks judge_same(const std::vector<ComparedNode>& nodes) {
  Checks checks;
  bool protocols_differ = false;
  for (const SameRule& rule : kSameRules) {
    const std::vector<Group> groups = groups_of(nodes, rule.fact);
    if (groups.empty()) continue;
    if (groups.size() == 1) {
      const std::size_t count = groups.front().nodes.size();
      const bool is_complete = count == nodes.size();
      checks.push_back(
          ok(rule.check, groups.front().value + (is_complete ? everywhere(count) : " on " + listed(groups.front().nodes))));
      continue;
    }
    if (rule.fact == std::string_view("protocol")) protocols_differ = true;
    // Versions with different protocols differ anyway. One defect gives one finding.
    if (rule.fact == std::string_view("ddprun") && protocols_differ) continue;
    const std::string found = std::string(rule.subject) + " differs between the nodes: " + text_of(groups);
    checks.push_back(rule.verdict == CheckVerdict::kError ? error(rule.check, found, rule.remedy)
                                                          : warning(rule.check, found, rule.remedy));
  }
  return checks;
}

// The values of a numeric fact with their nodes, in ascending order.
std::vector<std::pair<std::uint64_t, std::string>> numbers_of(const std::vector<ComparedNode>& nodes, const char* name) {
  std::vector<std::pair<std::uint64_t, std::string>> numbers;
  for (const ComparedNode& node : nodes) {
    const auto found = node.facts.find(name);
    if (found == node.facts.end()) continue;
    if (const auto number = exact_number<std::uint64_t>(found->second)) numbers.emplace_back(*number, node.label);
  }
  std::ranges::stable_sort(numbers, {}, &std::pair<std::uint64_t, std::string>::first);
  return numbers;
}

// The labels of the nodes whose number is below `limit`.
template <class Numbers>
Names below(const Numbers& numbers, std::uint64_t limit) {
  Names names;
  for (const auto& [number, label] : numbers) {
    if (number < limit) names.push_back(label);
  }
  return names;
}

// A node with less than half of the usual free memory runs another program, or is another model of machine.
void judge_memory(Checks& checks, const std::vector<ComparedNode>& nodes) {
  const auto numbers = numbers_of(nodes, "free-memory");
  if (numbers.empty()) return;
  const std::uint64_t usual = numbers[numbers.size() / 2].first;
  const std::string least = text_of_bytes(numbers.front().first) + " on " + numbers.front().second;
  if (const Names few = below(numbers, usual / 2); !few.empty()) {
    checks.push_back(warning("free-memory",
                             listed(few) + (few.size() == 1 ? " has" : " have") +
                                 " less than half of the usual free memory: " + least + ", usually " + text_of_bytes(usual),
                             "end other programs on this node, or check the memory limit of its container"));
  } else {
    checks.push_back(ok("free-memory", "at least " + least));
  }
}

// A node whose limit is far below that of the others was configured in another way.
void judge_open_files(Checks& checks, const std::vector<ComparedNode>& nodes) {
  constexpr std::uint64_t kEnough = 65536;
  const auto numbers = numbers_of(nodes, "open-files");
  if (numbers.empty()) return;
  const std::uint64_t largest = numbers.back().first;
  const std::uint64_t least = numbers.front().first;
  const std::uint64_t expected = std::min(kEnough, largest / 4);
  if (const Names few = below(numbers, expected); !few.empty()) {
    checks.push_back(warning("open-file-limits",
                             "the limit of open files differs between the nodes: " + std::to_string(least) + " on " +
                                 listed(few) + ", up to " + std::to_string(largest) + " on the others",
                             "set the same limit on all nodes: ulimit -n " + std::to_string(largest) +
                                 ", or LimitNOFILE of the service that starts the job"));
  } else {
    checks.push_back(ok("open-file-limits", "at least " + std::to_string(least)));
  }
}

std::string offset_text(double seconds) {
  const auto hundredths = round_to_nearest(seconds * 100);
  const std::string text = std::to_string(std::abs(hundredths / 100)) + "." + std::to_string(std::abs(hundredths / 10 % 10)) +
                           std::to_string(std::abs(hundredths % 10));
  return (hundredths < 0 ? "-" : "") + text;
}

void judge_clocks(Checks& checks, const std::vector<ComparedNode>& nodes) {
  Names wrong;
  double largest = 0;
  for (const ComparedNode& node : nodes) {
    if (!node.clock) continue;
    const double certain = std::max(0.0, std::abs(node.clock->offset_s) - node.clock->error_s);
    largest = std::max(largest, certain);
    if (certain > kMaxOffsetSeconds) {
      wrong.push_back(node.label + " by " + (node.clock->offset_s > 0 ? "+" : "") + offset_text(node.clock->offset_s) + " s");
    }
  }
  if (!wrong.empty()) {
    checks.push_back(warning("clocks", "clocks differ from the clock of " + nodes.front().label + ": " + listed(wrong),
                             "start a time service on all nodes, such as chrony: otherwise the times in logs and on shared "
                             "file systems are wrong"));
  } else if (nodes.size() > 1) {
    checks.push_back(ok("clocks", "within " + offset_text(largest) + " s of the clock of " + nodes.front().label));
  }
}

std::string nodes_text(int count) {
  return std::to_string(count) + (count == 1 ? " node" : " nodes");
}

Check judge_attendance(const std::vector<ComparedNode>& nodes, const Attendance& attendance) {
  Names labels;
  std::vector<bool> has_rank(static_cast<std::size_t>(attendance.max_nodes), false);
  bool ranks_known = false;
  for (const ComparedNode& node : nodes) {
    labels.push_back(node.label);
    if (!node.rank || *node.rank >= attendance.max_nodes) continue;
    has_rank[static_cast<std::size_t>(*node.rank)] = true;
    ranks_known = true;
  }
  const int came = static_cast<int>(nodes.size());
  if (came >= attendance.max_nodes) return ok("nodes", "all " + nodes_text(came) + " came: " + listed(labels));
  std::string found = std::to_string(came) + " of " + nodes_text(attendance.max_nodes) + " came within " +
                      std::to_string(round_to_nearest(attendance.waited_s)) + " s: " + listed(labels);
  if (ranks_known) {
    Names missing;
    for (std::size_t rank = 0; rank < has_rank.size(); ++rank) {
      if (!has_rank[rank]) missing.push_back(std::to_string(rank));
    }
    found += "; missing node ranks: " + listed(missing);
  }
  for (const std::string& line : attendance.refused) found += "; " + line;
  const std::string remedy =
      "start ddprun doctor on all nodes within this time (--rdzv-conf join_timeout=SECONDS), and read the output of the "
      "missing "
      "nodes; if --nnodes is too large, correct it";
  return came >= attendance.min_nodes ? warning("nodes", found, remedy) : error("nodes", found, remedy);
}

void judge_ranks(Checks& checks, const std::vector<ComparedNode>& nodes) {
  std::map<int, Names> by_rank;
  for (const ComparedNode& node : nodes) {
    if (node.rank) by_rank[*node.rank].push_back(node.label);
  }
  std::string doubled;
  for (const auto& [rank, labels] : by_rank) {
    if (labels.size() > 1) doubled += (doubled.empty() ? "" : "; ") + std::to_string(rank) + " on " + listed(labels);
  }
  if (doubled.empty()) return;
  checks.push_back(error("node-ranks", "several nodes have the same --node-rank: " + doubled,
                         "give every node its own --node-rank (PET_NODE_RANK), or remove the option on all nodes"));
}

void judge_lost(Checks& checks, const std::vector<ComparedNode>& nodes) {
  Names lost;
  for (const ComparedNode& node : nodes) {
    if (!node.is_complete) lost.push_back(node.label);
  }
  if (lost.empty()) return;
  checks.push_back(error("lost-nodes", "the connection to the doctor on " + listed(lost) + " ended before it was finished",
                         "read the output of ddprun doctor there, and check the network between the nodes"));
}

// Results of the nodes about their peers. Some sites resolve no host names between nodes at all, and a job does not need them:
// its agents connect by address. So only names that resolve on some nodes and not on others are a finding.
void judge_names(Checks& checks, const std::vector<ComparedNode>& nodes) {
  std::map<std::string, Names> unresolved;  // by the name, the nodes that have no address for it
  std::map<std::string, Names> loopback;
  int resolved = 0;
  for (const ComparedNode& node : nodes) {
    for (const PeerResult& result : node.results) {
      if (result.id < 0 || static_cast<std::size_t>(result.id) >= nodes.size()) continue;
      const std::string& name = nodes[static_cast<std::size_t>(result.id)].host;
      if (name == node.host) continue;  // two agents on one machine: the name may be a loopback name
      if (!result.name_problem.empty()) {
        unresolved[name].push_back(node.label);
      } else if (!result.addresses.empty() && std::ranges::all_of(result.addresses, is_loopback_address)) {
        loopback[name].push_back(node.label);
      } else if (!result.addresses.empty()) {
        ++resolved;
      }
    }
  }
  const auto described = [](const std::map<std::string, Names>& names) {
    Names texts;
    for (const auto& [name, labels] : names) texts.push_back(name + " (on " + listed(labels) + ")");
    return listed(texts);
  };
  const char* const remedy = "correct these names in /etc/hosts or DNS, since MASTER_ADDR may be the host name of a node";
  if (!loopback.empty()) {
    checks.push_back(
        warning("names", "host names of other nodes have only a loopback address: " + described(loopback), remedy));
  } else if (!unresolved.empty() && resolved > 0) {
    checks.push_back(warning("names", "host names of other nodes do not resolve: " + described(unresolved), remedy));
  } else if (!unresolved.empty()) {
    checks.push_back(ok("names", "no node resolves the host names of other nodes; agents connect by address"));
  } else if (resolved > 0) {
    checks.push_back(ok("names", "each node resolves the host names of its peers"));
  }
}

void judge_connections(Checks& checks, const std::vector<ComparedNode>& nodes) {
  std::map<std::pair<std::size_t, std::string>, Names> failures;  // by target and problem, the nodes that cannot connect
  bool tested = false;
  for (const ComparedNode& node : nodes) {
    for (const PeerResult& result : node.results) {
      if (result.id < 0 || static_cast<std::size_t>(result.id) >= nodes.size()) continue;
      if (result.connect_problem.empty()) {
        tested = true;
      } else {
        failures[{static_cast<std::size_t>(result.id), result.connect_problem}].push_back(node.label);
      }
    }
  }
  if (failures.empty()) {
    if (tested) checks.push_back(ok("connections", "each node can connect to its peers"));
    return;
  }
  Names texts;
  for (const auto& [target, from] : failures)
    texts.push_back("to " + nodes[target.first].label + " from " + listed(from) + ": " + target.second);
  checks.push_back(error("connections", "connections between nodes fail: " + listed(texts),
                         "open all TCP ports between the nodes, or those of --port-range: firewall, security group, "
                         "NetworkPolicy; check routes and --interface"));
}

}  // namespace

bool is_loopback_address(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

void label_nodes(std::vector<ComparedNode>& nodes) {
  std::map<std::string, int> total, used;
  for (const ComparedNode& node : nodes) ++total[node.host];
  for (ComparedNode& node : nodes) {
    node.label = node.host;
    if (total[node.host] > 1) node.label += "#" + std::to_string(used[node.host]++);
  }
}

Checks compare_nodes(const std::vector<ComparedNode>& nodes, const Attendance& attendance) {
  Checks checks{judge_attendance(nodes, attendance)};
  judge_ranks(checks, nodes);
  judge_lost(checks, nodes);
  const Checks same = judge_same(nodes);
  checks.insert(checks.end(), same.begin(), same.end());
  judge_open_files(checks, nodes);
  judge_memory(checks, nodes);
  judge_clocks(checks, nodes);
  judge_names(checks, nodes);
  judge_connections(checks, nodes);
  return checks;
}

}  // namespace ddprun::doctor
