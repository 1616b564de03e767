// Simulates many agents with one coordinator, to measure the cost per agent. One process has N real members
// (rendezvous/member/member.hpp) with real connections. A second process has the coordinator, with the complete rendezvous code
// of an agent (node_shell.hpp). bench/rendezvous_bench.py runs this program.
//
// The program prints three values as JSON: the time until all agents are released into a round, the median time from a failure
// to the next round, and the coordinator's memory per agent.
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>

#include "common/system/boot_time.hpp"
#include "rendezvous/node/session.hpp"
#include "rendezvous/shell/node_shell.hpp"
#include "rendezvous/wire/codec.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr const char* kToken = "a token for a crowd on one machine";
constexpr const char* kRun = "crowd";
constexpr int kMaxHandshakes = 256;
constexpr std::chrono::seconds kPatience{120};
constexpr std::chrono::seconds kQuietTime{2};  // long enough for two regular pings from each agent
// number of measured restarts; one restart takes only milliseconds, so a single measurement would be too noisy
constexpr std::size_t kRestarts = 9;
constexpr std::chrono::milliseconds kTimeBetweenRestarts{200};

double ms_since(Time begin) {
  return std::chrono::duration<double, std::milli>(Time(time_since_boot()) - begin).count();
}

// Runs the coordinator in this process and never returns. Writes the coordinator's port to the descriptor `out`. The
// coordinator's node is a member of the round, too.
[[noreturn]] void coordinate(int agents, int out) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::unsetenv("HOME");  // without HOME and XDG_STATE_HOME, the coordinator stores no state
  ::unsetenv("XDG_STATE_HOME");
  boost::asio::io_context io;
  NodeShellSettings settings;
  settings.token = kToken;
  settings.run_id = kRun;
  settings.meet_host = "127.0.0.1";
  settings.lead = NodeShellSettings::Lead::kYes;
  settings.closing = NodeShellSettings::MeetPort::kStays;
  settings.node.coordinator.min_nodes = settings.node.coordinator.max_nodes = agents + 1;
  settings.node.coordinator.judge = [](const FailureReport&, const Budget& before) {
    return Verdict{.restart = true, .exit_code = 1, .why = "", .delay = {}, .after = before};
  };
  std::unique_ptr<NodeShell> shell;
  shell = std::make_unique<NodeShell>(
      io, std::move(settings),
      [&](const ShellEvent& event) {
        if (std::holds_alternative<member_action::StopWorkers>(event)) shell->local(member_event::WorkersEnded{});
      },
      [](const std::string& line) { std::fprintf(stderr, "coordinator: %s\n", line.c_str()); });
  const std::uint16_t port = shell->meeting_point().port;
  if (::write(out, &port, sizeof port) != sizeof port) std::_Exit(1);
  shell->begin();
  io.run();
  std::_Exit(0);
}

class Crowd {
 public:
  Crowd(int agents, std::uint16_t port, pid_t coordinator);
  void run() { io_.run(); }

 private:
  struct Agent {
    Agent(boost::asio::io_context& io, MemberSettings settings, Now now)
        : member(std::move(settings), std::nullopt, now), timer(io) {}
    // The number of session messages received. Each ping sends this number back to the sender, as in a real agent.
    std::uint64_t received = 0;
    Member member;
    boost::asio::steady_timer timer;
    std::optional<Time> armed;
    std::map<LinkId, std::shared_ptr<Connection>> connections;
  };

  static Now now() { return {Time(time_since_boot()), 0}; }
  void feed(Agent& agent, const MemberEvent& event);
  void carry_out(Agent& agent, MemberAction& action);
  void arm(Agent& agent);
  void begin_agents();
  void dial(Agent& agent, LinkId link);
  void dialled(Agent& agent, LinkId link, const ConnectResult& result);
  void started();
  // Reports the failure of a worker after `quiet`.
  void fail_after(std::chrono::milliseconds quiet);
  double coordinator_kb() const;

  boost::asio::io_context io_;
  Transport transport_;
  std::uint16_t port_;
  pid_t coordinator_;
  std::vector<std::unique_ptr<Agent>> agents_;
  std::size_t dialled_ = 0;
  int dialling_ = 0;
  std::size_t started_ = 0;
  int rounds_ = 0;
  double empty_kb_ = 0;
  double joined_ms_ = 0;
  std::vector<double> restarted_ms_;
  Time start_time_{};
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer failure_;
};

Crowd::Crowd(int agents, std::uint16_t port, pid_t coordinator)
    : transport_(io_, {.token = kToken, .run_id = kRun, .protocol_version = kProtocolVersion, .instance = new_instance_id()}),
      port_(port),
      coordinator_(coordinator),
      deadline_(io_),
      failure_(io_) {
  deadline_.expires_after(kPatience);
  deadline_.async_wait([this](const boost::system::error_code&) {
    std::fprintf(stderr, "crowd: %zu of %zu agents started within %lld s\n", started_, agents_.size(),
                 static_cast<long long>(kPatience.count()));
    ::kill(coordinator_, SIGKILL);
    std::_Exit(1);
  });
  empty_kb_ = coordinator_kb();
  start_time_ = now().steady;
  for (int i = 0; i < agents; ++i) {
    MemberSettings settings;
    settings.node = new_instance_id();
    settings.incarnation = 1;
    std::copy(transport_.run().begin(), transport_.run().end(), settings.run.begin());
    settings.hostname = "crowd" + std::to_string(i);
    settings.endpoints = {{"127.0.0.1", port}};
    settings.join_timeout = kPatience;
    agents_.push_back(std::make_unique<Agent>(io_, std::move(settings), now()));
  }
  begin_agents();
}

// Starts agents only while fewer than kMaxHandshakes connections are being opened. With more such connections, some agents
// would wait longer than a lease and would then connect again.
void Crowd::begin_agents() {
  while (dialled_ < agents_.size() && dialling_ < kMaxHandshakes) feed(*agents_[dialled_++], node_event::Tick{});
}

void Crowd::feed(Agent& agent, const MemberEvent& event) {
  for (MemberAction& action : agent.member.on(event, now())) carry_out(agent, action);
  arm(agent);
}

void Crowd::carry_out(Agent& agent, MemberAction& action) {
  if (const auto* target = std::get_if<node_action::Dial>(&action)) {
    dial(agent, target->link);
  } else if (auto* send = std::get_if<node_action::ToListener>(&action)) {
    if (auto* ping = std::get_if<Ping>(&send->message)) ping->received = agent.received;
    if (const auto found = agent.connections.find(send->link); found != agent.connections.end()) {
      found->second->send(encode(send->message));
    }
  } else if (const auto* close = std::get_if<node_action::CloseLink>(&action)) {
    if (const auto found = agent.connections.find(close->link); found != agent.connections.end()) {
      found->second->close();
      agent.connections.erase(found);
    }
  } else if (std::holds_alternative<member_action::StartWorkers>(action)) {
    started();
  } else if (std::holds_alternative<member_action::StopWorkers>(action)) {
    boost::asio::post(io_, [this, &agent] { feed(agent, member_event::WorkersEnded{}); });
  }
}

void Crowd::arm(Agent& agent) {
  const auto next = agent.member.next_deadline();
  if (next == agent.armed) return;
  agent.armed = next;
  agent.timer.cancel();
  if (!next) return;
  agent.timer.expires_after(*next - now().steady);
  agent.timer.async_wait([this, &agent](const boost::system::error_code& error) {
    if (error) return;
    agent.armed.reset();
    feed(agent, node_event::Tick{});
  });
}

void Crowd::dial(Agent& agent, LinkId link) {
  ++dialling_;
  ConnectOptions options;
  options.host = "127.0.0.1";
  options.port = port_;
  boost::asio::co_spawn(io_, transport_.connect(std::move(options)),
                        [this, &agent, link](const std::exception_ptr& error, const ConnectResult& result) {
                          if (error) std::rethrow_exception(error);
                          --dialling_;
                          dialled(agent, link, result);
                          begin_agents();
                        });
}

void Crowd::dialled(Agent& agent, LinkId link, const ConnectResult& result) {
  if (!result.connection) {
    std::fprintf(stderr, "crowd: %s\n", result.failure.message.c_str());
    return feed(agent, node_event::LinkClosed{link});
  }
  agent.connections[link] = result.connection;
  result.connection->start({[this, &agent, link](std::string_view frame) {
                              FromCoordinator message = decode_from_coordinator(frame);
                              if (belongs_to_session(message)) ++agent.received;
                              feed(agent, node_event::FromListener{link, std::move(message)});
                            },
                            [this, &agent, link](const Closed&) {
                              if (agent.connections.erase(link) > 0) feed(agent, node_event::LinkClosed{link});
                            }});
  feed(agent, node_event::LinkOpened{link, "127.0.0.1"});
}

void Crowd::started() {
  if (++started_ < agents_.size()) return;
  started_ = 0;
  const double took = ms_since(start_time_);
  if (rounds_++ == 0) {
    joined_ms_ = took;
    // The first round (start of the workers) can leave thousands of messages that are not processed yet. Wait until they are
    // processed, because they would delay the second round.
    return fail_after(kQuietTime);
  }
  restarted_ms_.push_back(took);
  if (restarted_ms_.size() < kRestarts) return fail_after(kTimeBetweenRestarts);
  std::ranges::sort(restarted_ms_);
  const double kb = (coordinator_kb() - empty_kb_) / static_cast<double>(agents_.size());
  std::printf("{\"agents\": %zu, \"joined_ms\": %.1f, \"restarted_ms\": %.2f, \"coordinator_kb_per_agent\": %.1f}\n",
              agents_.size(), joined_ms_, restarted_ms_[kRestarts / 2], kb);
  std::fflush(stdout);
  ::kill(coordinator_, SIGKILL);
  ::waitpid(coordinator_, nullptr, 0);
  std::_Exit(0);
}

void Crowd::fail_after(std::chrono::milliseconds quiet) {
  failure_.expires_after(quiet);
  failure_.async_wait([this](const boost::system::error_code&) {
    start_time_ = now().steady;
    feed(*agents_.back(), FailureReport{});
    feed(*agents_.back(), member_event::WorkersEnded{});
  });
}

double Crowd::coordinator_kb() const {
  std::ifstream statm("/proc/" + std::to_string(coordinator_) + "/statm");
  long total = 0, resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1024;
}

int main_of_crowd(int agents) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < static_cast<rlim_t>(agents) + 600) {
    std::fprintf(stderr,
                 "crowd: %d agents need one open file each, plus 600 in total, but the limit is %llu: raise it (ulimit -Hn)\n",
                 agents, static_cast<unsigned long long>(files.rlim_max));
    return 2;
  }
  int ends[2];
  if (::pipe(ends) != 0) return 1;
  const pid_t coordinator = ::fork();
  if (coordinator == 0) coordinate(agents, ends[1]);
  ::close(ends[1]);
  std::uint16_t port = 0;
  if (coordinator < 0 || ::read(ends[0], &port, sizeof port) != sizeof port) {
    std::fprintf(stderr, "crowd: the coordinator did not start\n");
    return 1;
  }
  Crowd crowd(agents, port, coordinator);
  crowd.run();
  return 1;
}

}  // namespace
}  // namespace ddprun::rendezvous

int main(int count, char** arguments) {
  int agents = 0;
  if (count != 2 || std::from_chars(arguments[1], arguments[1] + std::strlen(arguments[1]), agents).ec != std::errc() ||
      agents < 1) {
    std::fprintf(stderr, "usage: rendezvous_crowd AGENTS\n");
    return 2;
  }
  return ddprun::rendezvous::main_of_crowd(agents);
}
