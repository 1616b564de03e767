// Implementation of run_on_hosts.hpp: checks the options, and finds ssh, this program and the token.
#include "launcher/hosts/run_on_hosts.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/system/print.hpp"
#include "launcher/hosts/host_list.hpp"
#include "launcher/hosts/hosts_command.hpp"
#include "launcher/hosts/hosts_loop.hpp"
#include "launcher/machine/detect.hpp"
#include "rendezvous/identity/token_search.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

fs::path required_ssh() {
  const auto ssh = find_on_path("ssh");
  if (!ssh) throw UsageError("--hosts starts agents with ssh, which is not on PATH: install an OpenSSH client");
  return *ssh;
}

// Returns the path of this program as the user called it, with symbolic links. In a virtual environment, Python is in the
// folder of this path.
fs::path called_program(const Arguments& arguments) {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  const fs::path called = arguments.called_from.empty() ? find_on_path("ddprun").value_or(self)
                                                        : fs::absolute(arguments.called_from / "ddprun", error);
  return fs::equivalent(called, self, error) && !error ? called : self;
}

std::string current_folder() {
  std::error_code error;
  const fs::path folder = fs::current_path(error);
  if (error) throw UsageError("the current folder cannot be used: " + error.message() + "; change to a folder that exists");
  return folder.string();
}

}  // namespace

int run_on_hosts(const Arguments& arguments) {
  std::optional<std::string> variable = take_token_variable();
  const Settings& settings = arguments.settings;
  if (arguments.called_as == CalledAs::kTorchrun)
    throw UsageError("--hosts is an option of ddprun only: call ddprun, not torchrun");
  const std::vector<Host> hosts = parse_hosts(settings.text("hosts"));
  refuse_options_of_nodes(settings);
  constexpr double kMaxTimeout = 1e6;
  const double timeout_s = settings.number("hosts-timeout", 1, kMaxTimeout);
  const std::string folder = current_folder();
  if (settings.flag("dry-run")) {
    if (settings.flag("json"))
      throw UsageError("--hosts with --dry-run prints the commands of the agents as text: remove --json");
    print(hosts_dry_run(arguments, hosts, folder));
    return 0;
  }
  std::optional<FoundToken> token;
  if (hosts.size() > 1) {
    token = find_token({.token_file = settings.text("token-file"),
                        .variable = std::move(variable),
                        .run_dir = {},
                        .user_file = token_file_of_user()});
  } else if (variable) {
    const Token wiped(std::move(*variable));
  }
  const HostsFacts facts{.ssh = required_ssh(),
                         .program = called_program(arguments).string(),
                         .folder = folder,
                         .lost_timeout = milliseconds(static_cast<std::int64_t>(timeout_s * 1000))};
  return run_hosts_loop(arguments, hosts, facts, token ? token->token.text() : std::string_view());
}

void run_on_first_host(const std::string& hosts, const std::vector<std::string>& words) {
  const std::vector<Host> parsed = parse_hosts(hosts);
  const fs::path ssh = required_ssh();
  std::error_code error;
  const std::string program = fs::read_symlink("/proc/self/exe", error).string();
  std::vector<std::string> command = ssh_words(parsed.front().target, program, words);
  std::vector<char*> pointers;
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::signal(SIGPIPE, SIG_DFL);
  ::execv(ssh.c_str(), pointers.data());
  throw UsageError(ssh.string() + " could not be started: " + std::generic_category().message(errno));
}

}  // namespace ddprun
