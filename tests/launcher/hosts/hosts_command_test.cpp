// Tests the command of each agent, the command line of ssh, and the variables of the agents.
#include "launcher/hosts/hosts_command.hpp"

#include <gtest/gtest.h>

#include <map>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using Words = std::vector<std::string>;

Arguments parsed(const Words& args, std::map<std::string, std::string> variables = {}) {
  return parse_arguments(args, [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(std::string(name));
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string refused_options(const Words& args, std::map<std::string, std::string> variables = {}) {
  try {
    refuse_options_of_nodes(parsed(args, std::move(variables)).settings);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing is refused";
}

const MeetingPlace kPlace{.address = "10.0.0.4", .port = "29400"};

TEST(HostsCommand, EachAgentGetsItsRankAndItsWorkers) {
  const auto hosts = parse_hosts("a,b:4");
  const Arguments arguments =
      parsed({"--hosts", "a,b:4", "--nproc-per-node", "2", "-vv", "--token-file", "t", "train.py", "--lr", "0.1"});
  EXPECT_EQ(agent_words(arguments, hosts, 0, kPlace),
            (Words{"--nnodes=2", "--node-rank=0", "--master-addr=10.0.0.4", "--master-port=29400", "--nproc-per-node=2",
                   "--verbose", "--verbose", "train.py", "--lr", "0.1"}));
  EXPECT_EQ(agent_words(arguments, hosts, 1, kPlace),
            (Words{"--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.4", "--master-port=29400", "--nproc-per-node=4",
                   "--verbose", "--verbose", "train.py", "--lr", "0.1"}));
}

TEST(HostsCommand, VariablesOfTheLocalSideBecomeOptions) {
  const auto hosts = parse_hosts("a,b");
  const Arguments arguments =
      parsed({"train.json"}, {{"DDPRUN_HOSTS", "a,b"}, {"PET_MAX_RESTARTS", "5"}, {"DDPRUN_MASTER_PORT", "7000"}});
  EXPECT_EQ(agent_words(arguments, hosts, 1, kPlace), (Words{"--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.4",
                                                             "--max-restarts=5", "--master-port=7000", "train.json"}));
}

TEST(HostsCommand, OneHostIsAJobOnOneMachine) {
  const auto hosts = parse_hosts("a:3");
  EXPECT_EQ(agent_words(parsed({"--hosts=a:3", "train.json", "epochs=2"}), hosts, 0, kPlace),
            (Words{"--nproc-per-node=3", "train.json", "epochs=2"}));
}

TEST(HostsCommand, AProgramThatStartsWithADashIsNotAnOption) {
  const auto hosts = parse_hosts("a");
  EXPECT_EQ(agent_words(parsed({"--hosts=a", "--no-python", "--", "-x"}), hosts, 0, kPlace),
            (Words{"--no-python", "--", "-x"}));
}

TEST(HostsCommand, RefusesOptionsOfNodes) {
  for (const Words& args : {Words{"--nnodes", "2"},
                            {"--node-rank", "0"},
                            {"--master-addr", "h"},
                            {"--rdzv-endpoint", "h"},
                            {"--rdzv-backend", "c10d"},
                            {"--standalone"},
                            {"--local-addr", "h"}})
    EXPECT_NE(refused_options(args).find("--hosts and " + args.front() + " (flag " + args.front() + ") exclude each other"),
              std::string::npos)
        << refused_options(args);
  EXPECT_NE(refused_options({}, {{"PET_NNODES", "2"}}).find("(environment PET_NNODES)"), std::string::npos);
  EXPECT_EQ(refused_options({"--master-port", "7000", "--port-range", "7000-7010"}), "nothing is refused");
  EXPECT_EQ(refused_options({}, {{"PET_STANDALONE", "0"}}), "nothing is refused");
}

TEST(HostsCommand, TheRemoteShellGetsQuotedWords) {
  const Words words{"stop", "a b", "it's", "$HOME", "x\ny", ""};
  const Words ssh = ssh_words("bob@b", "/opt/my tools/ddprun", words);
  EXPECT_EQ(ssh.front(), "ssh");
  EXPECT_EQ(ssh[ssh.size() - 3], "--");
  EXPECT_EQ(ssh[ssh.size() - 2], "bob@b");
  EXPECT_TRUE(ssh.back().ends_with(" '/opt/my tools/ddprun' stop 'a b' 'it'\\''s' '$HOME' 'x\ny' ''")) << ssh.back();
}

TEST(HostsCommand, OnlySomeVariablesAreForwarded) {
  const Words environment{"PATH=/a",  "HOME=/h",        "NCCL_DEBUG=INFO", "DDPRUN_TOKEN=secret",
                          "SECRET=x", "VIRTUAL_ENV=/v", "NCCLX=1"};
  EXPECT_EQ(forwarded_variables(environment), (Words{"PATH=/a", "NCCL_DEBUG=INFO", "VIRTUAL_ENV=/v"}));
}

TEST(HostsCommand, AnAgentKeepsTheOtherVariablesOfItsHost) {
  const Words own{"PATH=/usr/bin", "HOME=/h", "DDPRUN_HOSTS=a,b", "DDPRUN_TOKEN=old", "NCCL_DEBUG=WARN"};
  const Words forwarded{"PATH=/venv/bin", "NCCL_DEBUG=INFO"};
  EXPECT_EQ(agent_variables(own, forwarded), (Words{"HOME=/h", "PATH=/venv/bin:/usr/bin", "NCCL_DEBUG=INFO"}));
}

TEST(HostsCommand, TheDryRunShowsTheCommands) {
  const auto hosts = parse_hosts("a,bob@b:4");
  EXPECT_EQ(
      hosts_dry_run(parsed({"--hosts=a,bob@b:4", "train.py", "a b"}), hosts, "/w"),
      "a: cd /w && ddprun --nnodes=2 --node-rank=0 '--master-addr=<address of a>' '--master-port=<free port of a>' train.py "
      "'a b'\n"
      "bob@b: cd /w && ddprun --nnodes=2 --node-rank=1 '--master-addr=<address of a>' '--master-port=<free port of a>' "
      "--nproc-per-node=4 train.py 'a b'\n");
}

}  // namespace
}  // namespace ddprun
