// Tests that ddprun prints a specific line with a remedy for each way in which ssh can fail. The tests use the error texts of
// OpenSSH 9.2.
#include "launcher/hosts/ssh_problem.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

SshProblem problem(int exit_code, std::string_view errors, bool greeted = false) {
  return ssh_problem({.exit_code = exit_code, .greeted = greeted, .errors = errors}, "bob@b", "/opt/bin/ddprun", "0.1.0");
}

TEST(SshProblem, MistakesOfTheUser) {
  struct Case {
    int exit_code;
    const char* errors;
    const char* expected;
  };
  for (const Case& one : {
           Case{255, "ssh: Could not resolve hostname b: Name or service not known\r\n",
                "unknown host: expected a name with an address"},
           Case{255, "bob@b: Permission denied (publickey).\r\n",
                "the login was refused: expected a key that works without a prompt; "
                "use ssh-copy-id bob@b"},
           Case{255, "Host key verification failed.\r\n", "run ssh bob@b once, and check the key"},
           Case{127, "sh: 1: exec: ddprun: not found\n",
                "ddprun was not found: expected /opt/bin/ddprun, or a ddprun on the PATH"},
           Case{2, "ddprun: supervise-over-ssh: No such file or directory\n", "expected version 0.1.0, as on this machine"},
       }) {
    const SshProblem found = problem(one.exit_code, one.errors);
    EXPECT_NE(found.text.find(one.expected), std::string::npos) << found.text;
    EXPECT_TRUE(found.is_usage) << found.text;
    EXPECT_EQ(found.text.find('\n'), std::string::npos);
  }
}

TEST(SshProblem, AHostThatMayBecomeReachable) {
  EXPECT_EQ(problem(255, "ssh: connect to host b port 22: Connection refused\r\n").text,
            "ssh could not connect: ssh: connect to host b port 22: Connection refused");
  EXPECT_FALSE(problem(255, "ssh: connect to host b port 22: Connection timed out\r\n").is_usage);
}

TEST(SshProblem, ALostConnectionQuotesTheLastLineOnly) {
  const SshProblem lost = problem(255, "banner\nclient_loop: send disconnect: Broken pipe\n", true);
  EXPECT_EQ(lost.text, "ssh ended with exit code 255: client_loop: send disconnect: Broken pipe");
  EXPECT_FALSE(lost.is_usage);
  EXPECT_EQ(problem(143, "", true).text, "ssh ended with exit code 143");
  EXPECT_LT(problem(255, std::string(10'000, 'x'), true).text.size(), 300u);
}

}  // namespace
}  // namespace ddprun
