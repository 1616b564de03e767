// Messages of NodeShell about unusable peers. Tests of whole jobs are in tests/whole_program.
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

TEST(NodeShell, SaysOnceThatACoordinatorTakesConnectionsAndSaysNothing) {
  ::unsetenv("HOME");  // the node must not write a record
  ::unsetenv("XDG_STATE_HOME");
  const std::vector<int> inherited = inherited_sockets();  // from the process that started the test
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
  settings.node.member.lease = milliseconds(1800);  // the limit for the first message on each connection
  std::vector<std::string> said;
  auto shell = std::make_unique<NodeShell>(
      net.io, std::move(settings),
      [&](const ShellEvent& event) {
        if (const auto* nobody = std::get_if<NobodyThere>(&event)) said.push_back(nobody->why);
      },
      [](const std::string&) {});
  shell->begin();
  ASSERT_TRUE(net.run_until([&] { return !said.empty(); }));
  const std::size_t calls = callers.size();
  EXPECT_NE(said.front().find("took the connection, and then nothing came"), std::string::npos) << said.front();
  ASSERT_TRUE(net.run_until([&] { return callers.size() == calls + 2; }));  // it continues to retry
  EXPECT_EQ(said.size(), 1U);
  EXPECT_EQ(inherited_sockets(), inherited);  // includes the ports, the connection to the coordinator and the farewell port

  shell.reset();
  net.io.restart();
  net.io.poll();  // a pending connect ends with a cancellation
}

// The listener duplicates the descriptor of such a connection to pass it on.
TEST(NodeShell, NoProgramInheritsTheConnectionOfANodeThatJoins) {
  ::unsetenv("HOME");  // the node must not write a record
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
  bool inherits = false;  // checked at every step, since the shell soon closes the connection
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

// The line explains to the user why the node comes back as a new one.
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
