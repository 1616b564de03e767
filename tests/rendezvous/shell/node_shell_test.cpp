// Tests the messages that NodeShell logs about peers with invalid answers. Whole jobs are tested in tests/whole_program.
#include "rendezvous/shell/node_shell.hpp"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "common/temporary_folder.hpp"
#include "rendezvous/transport/net.hpp"

namespace ddprun::test {
namespace {

using namespace rendezvous;

TEST(NodeShell, ReportsASilentCoordinatorOnce) {
  ::unsetenv("HOME");  // prevents the node from writing a record
  ::unsetenv("XDG_STATE_HOME");
  // sockets that child processes would inherit before the test opens any socket
  const std::vector<int> inherited = inherited_sockets();
  Net net;
  const auto transport = net.transport(kToken, "job", {}, static_cast<std::uint8_t>(kProtocolVersion));
  std::vector<std::shared_ptr<Connection>> callers;
  ListenOptions options;
  options.address = "127.0.0.1";
  const auto listener = transport->listen(options, [&](const std::shared_ptr<Connection>& caller) {
    caller->start({});
    callers.push_back(caller);
  });

  NodeShellSettings settings;
  settings.token = kToken;
  settings.run_id = "job";
  settings.meet_host = "127.0.0.1";
  settings.meet_port = listener->local().port();
  settings.node.member.lease = milliseconds(1800);  // the lease also limits the time until a connection's first message
  std::vector<std::string> messages;
  auto shell = std::make_unique<NodeShell>(
      net.io, std::move(settings),
      [&](const ShellEvent& event) {
        if (const auto* event_text = std::get_if<NoNodeAnswers>(&event)) messages.push_back(event_text->why);
      },
      [](const std::string&) {});
  shell->begin();
  ASSERT_TRUE(net.run_until([&] { return !messages.empty(); }));
  const std::size_t calls = callers.size();
  EXPECT_NE(messages.front().find("accepted the connection but sent nothing"), std::string::npos) << messages.front();
  ASSERT_TRUE(net.run_until([&] { return callers.size() == calls + 2; }));  // the node must continue to retry
  EXPECT_EQ(messages.size(), 1U);
  EXPECT_EQ(inherited_sockets(), inherited);  // child processes must not inherit any port or connection of the node

  shell.reset();
  net.io.restart();
  net.io.poll();  // runs the handler of the canceled connect
}

// The listener duplicates the descriptor of a join connection to pass it to another process. Child processes must not inherit
// the duplicate either.
TEST(NodeShell, JoinConnectionIsNotInherited) {
  ::unsetenv("HOME");  // prevents the node from writing a record
  ::unsetenv("XDG_STATE_HOME");
  const std::vector<int> inherited = inherited_sockets();
  Net net;
  NodeShellSettings settings;
  settings.token = kToken;
  settings.run_id = "job";
  settings.job = "its config";
  settings.meet_host = "127.0.0.1";
  settings.lead = NodeShellSettings::Lead::kYes;
  auto shell = std::make_unique<NodeShell>(
      net.io, std::move(settings), [](const ShellEvent&) {}, [](const std::string&) {});
  const auto transport = net.transport(kToken, kJoinRunId, {}, static_cast<std::uint8_t>(kProtocolVersion));
  const auto call = net.call(*transport, to(shell->meeting_point().port));
  bool inherits = false;  // checked at every step, because the shell soon closes the connection
  ASSERT_TRUE(net.run_until([&] {
    inherits = inherits || inherited_sockets() != inherited;
    return call->has_value();
  }));
  EXPECT_FALSE(inherits);
  const auto connection = opened(**call);
  ASSERT_TRUE(connection);
  Inbox inbox;
  connection->start(inbox.handlers());
  ASSERT_TRUE(net.run_until([&] { return !inbox.frames.empty(); }));
  EXPECT_EQ(inbox.frames.front(), "its config");
  connection->close();
  shell.reset();
  net.run_ready();
}

// If a record is damaged, a message must explain why the node joins as a new node.
TEST(NodeShell, ReportsADamagedRecord) {
  const TemporaryFolder folder;
  ::setenv("XDG_STATE_HOME", folder.path().c_str(), 1);
  Net net;
  std::vector<std::string> lines;
  const auto started = [&] {
    NodeShellSettings settings;
    settings.token = kToken;
    settings.run_id = "job";
    settings.meet_host = "127.0.0.1";
    settings.meet_port = 9;
    return std::make_unique<NodeShell>(
        net.io, std::move(settings), [](const ShellEvent&) {}, [&](const std::string& line) { lines.push_back(line); });
  };
  auto shell = started();
  std::filesystem::path record;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    if (entry.path().extension() == ".lock") record = entry.path().parent_path() / entry.path().stem();
  }
  shell.reset();
  ASSERT_FALSE(record.empty());
  std::ofstream(record) << "{broken";
  shell = started();
  shell->begin();
  ::unsetenv("XDG_STATE_HOME");
  ASSERT_FALSE(lines.empty());
  EXPECT_NE(lines.front().find(record.string() + " is damaged"), std::string::npos) << lines.front();
  shell.reset();
  net.io.restart();
  net.io.poll();
}

}  // namespace
}  // namespace ddprun::test
