#include "launcher/hosts/hosts_command.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/options/shell_quoted.hpp"

namespace ddprun {
namespace {

// Options that --hosts sets for each agent, or that contradict --hosts.
constexpr std::array<std::string_view, 8> kSetByHosts{"nnodes",       "node-rank",  "master-addr", "rdzv-endpoint",
                                                      "rdzv-backend", "standalone", "local-addr",  "arbiter"};
// Options of this process, which the agents do not get.
constexpr std::array<std::string_view, 4> kLocalOptions{"hosts", "hosts-timeout", "token-file", "dry-run"};

constexpr std::array<std::string_view, 6> kForwardedNames{"PATH",        "PYTHONPATH",   "PYTHON_EXEC",
                                                          "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH"};
constexpr std::array<std::string_view, 7> kForwardedPrefixes{"NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "CUDA_", "OMP_", "MKL_"};

// Variables that an agent must not inherit from the startup files of its host.
constexpr std::array<std::string_view, 3> kRemoved{"DDPRUN_HOSTS", "PET_HOSTS", "DDPRUN_TOKEN"};

template <class Names>
bool contains(const Names& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string_view name_of_variable(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

std::string option_word(std::string_view name, const std::string& value) {
  return "--" + std::string(name) + "=" + value;
}

}  // namespace

void refuse_options_of_nodes(const Settings& settings) {
  for (const std::string_view name : kSetByHosts) {
    if (!settings.given(name)) continue;
    const Setting& setting = *settings.find(name);
    if (find_option(name)->is_flag() && !settings.flag(name)) continue;
    throw UsageError("--hosts and --" + std::string(name) + " (" + setting.source +
                     ") exclude each other, since --hosts sets the nodes of the job: remove one of them");
  }
}

std::vector<std::string> agent_words(const Arguments& arguments, std::span<const Host> hosts, std::size_t rank,
                                     const MeetingPlace& place) {
  const Settings& settings = arguments.settings;
  const Host& host = hosts[rank];
  std::vector<std::string> words;
  if (hosts.size() > 1) {
    words = {option_word("nnodes", std::to_string(hosts.size())), option_word("node-rank", std::to_string(rank)),
             option_word("master-addr", place.address)};
    if (!settings.given("master-port") && !settings.given("port-range"))
      words.push_back(option_word("master-port", place.port));
  }
  if (host.workers) words.push_back(option_word("nproc-per-node", std::to_string(*host.workers)));
  for (const OptionSpec& option : option_table()) {
    const bool is_replaced = option.name == "nproc-per-node" && host.workers;
    if (!settings.given(option.name) || is_replaced || contains(kLocalOptions, option.name)) continue;
    const Setting& setting = *settings.find(option.name);
    if (!option.is_flag()) {
      words.push_back(option_word(option.name, setting.value));
      continue;
    }
    constexpr int kMaxCount = 2;  // a third -v has no effect
    words.insert(words.end(), static_cast<std::size_t>(std::clamp(std::atoi(setting.value.c_str()), 0, kMaxCount)),
                 "--" + std::string(option.name));
  }
  if (!arguments.positional.empty() && arguments.positional.front().starts_with('-')) words.emplace_back("--");
  words.insert(words.end(), arguments.positional.begin(), arguments.positional.end());
  return words;
}

std::vector<std::string> ssh_words(const std::string& target, const std::string& program, std::span<const std::string> words) {
  // The user may have any login shell. All usual shells accept `exec sh -c` with words in single quotes.
  std::string command =
      "exec sh -c 'if [ -x \"$0\" ]; then exec \"$0\" \"$@\"; else exec ddprun \"$@\"; fi' " + shell_quoted(program);
  for (const std::string& word : words) command += " " + shell_quoted(word);
  return {"ssh",
          "-T",  // no terminal: its line discipline would change the bytes
          "-a",
          "-x",
          "-o",
          "BatchMode=yes",  // never prompts for a password
          "-o",
          "ConnectTimeout=15",
          "-o",
          "ServerAliveInterval=10",
          "-o",
          "ServerAliveCountMax=3",
          "-o",
          "ClearAllForwardings=yes",
          "-o",
          "LogLevel=ERROR",
          "--",
          target,
          command};
}

std::vector<std::string> forwarded_variables(std::span<const std::string> environment) {
  std::vector<std::string> chosen;
  for (const std::string& variable : environment) {
    const std::string_view name = name_of_variable(variable);
    const bool has_prefix =
        std::ranges::any_of(kForwardedPrefixes, [&](std::string_view one) { return name.starts_with(one); });
    if (has_prefix || contains(kForwardedNames, name)) chosen.push_back(variable);
  }
  return chosen;
}

std::vector<std::string> agent_variables(std::span<const std::string> own, std::span<const std::string> forwarded) {
  std::vector<std::string> variables;
  std::string own_path;
  const auto is_forwarded = [&](std::string_view name) {
    return std::ranges::any_of(forwarded, [&](const std::string& one) { return name_of_variable(one) == name; });
  };
  for (const std::string& variable : own) {
    const std::string_view name = name_of_variable(variable);
    if (name == "PATH") own_path = variable.substr(name.size() + 1);
    if (!contains(kRemoved, name) && !is_forwarded(name)) variables.push_back(variable);
  }
  for (const std::string& variable : forwarded) {
    const bool is_path = name_of_variable(variable) == "PATH" && !own_path.empty();
    variables.push_back(is_path ? variable + ":" + own_path : variable);
  }
  return variables;
}

std::string hosts_dry_run(const Arguments& arguments, std::span<const Host> hosts, const std::string& folder) {
  const std::string& first = hosts.front().name;
  const MeetingPlace unknown{.address = "<address of " + first + ">", .port = "<free port of " + first + ">"};
  std::string text;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    std::string command = "cd " + shell_quoted(folder) + " && ddprun";
    for (const std::string& word : agent_words(arguments, hosts, rank, unknown)) command += " " + shell_quoted(word);
    text += hosts[rank].target + ": " + printable(command, LineEnds::kKeep) + "\n";
  }
  return text;
}

}  // namespace ddprun
