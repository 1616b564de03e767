// The decisions of `ddprun --hosts`, as a state machine: when agents are started, and what happens if a connection or an agent
// ends. hosts_loop.cpp supplies the events and carries out the actions. The code is pure: the caller passes the time.
//
// The problem: an ssh connection may break while the job is healthy, for example when a laptop sleeps. If the agent ended with
// its connection, a short interruption would end the job. If the agent always kept running, it would not end after the death
// of the local process. So each agent has a supervisor on its host (agent_supervisor.hpp), which keeps the agent running
// without a connection, but only for --hosts-timeout. During this time the local process connects again, and continues to show
// the agent's output. After this time the supervisor sends SIGTERM, and the agent saves and ends.
//
// The phases of a host:
//
//   kConnecting -> kReady -> kRuns -> kEnded        a job without faults
//   kRuns -> kLost -> kRuns                         the connection broke, and the agent still runs
//   kLost -> kRestarts -> kRuns                     the host was rebooted: its agent is started again, with the same rank
//   kRuns -> kRestarts                              a signal killed the agent, or it was cut off, and other agents run
//
// No agent starts before all hosts are ready. So a mistake on one host does not leave waiting agents on the other hosts. If an
// agent fails and others still run after `end_timeout`, the others get SIGTERM: they would wait for a node that never comes.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddprun {

struct HostsSettings {
  std::vector<std::string> names;                    // host names, in the order of their node ranks
  std::chrono::milliseconds answer_timeout{60'000};  // from the start of ssh to the supervisor's answer
  std::chrono::milliseconds lost_timeout{120'000};   // --hosts-timeout
  std::chrono::milliseconds end_timeout{60'000};     // time from the first failure of an agent to SIGTERM for the other agents
  int max_restarts = 3;                              // maximum number of restarts of each agent
};

namespace hosts_event {
struct Ready {
  std::size_t host;
  std::string address;  // set only by the first host
  int port = 0;         // a free port of the first host
};
struct Attached {
  std::size_t host;
};
struct Unknown {  // the host has no supervisor of this job
  std::size_t host;
};
struct Refused {  // the supervisor cannot start an agent
  std::size_t host;
  std::string why;
};
struct AgentEnded {
  std::size_t host;
  int number;  // the exit code, or the signal
  bool by_signal = false;
};
struct Disconnected {
  std::size_t host;
  std::string why;
  bool is_usage = false;  // true if the user must correct something, such as a name or a key
};
struct Signalled {
  int signal;
};
}  // namespace hosts_event
using HostsEvent = std::variant<hosts_event::Ready, hosts_event::Attached, hosts_event::Unknown, hosts_event::Refused,
                                hosts_event::AgentEnded, hosts_event::Disconnected, hosts_event::Signalled>;

namespace hosts_action {
// After this action, the caller must pass no further event of the host's old connection.
struct Close {
  std::size_t host;
};
struct Connect {  // starts ssh; `attach` is true if the agent was started over an earlier connection
  std::size_t host;
  bool attach = false;
};
struct StartAgent {
  std::size_t host;
};
struct SendSignal {
  std::size_t host;
  int signal;
};
struct Print {
  std::string text;
};
}  // namespace hosts_action
using HostsAction = std::variant<hosts_action::Close, hosts_action::Connect, hosts_action::StartAgent, hosts_action::SendSignal,
                                 hosts_action::Print>;

class HostsState {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit HostsState(HostsSettings settings);

  std::vector<HostsAction> start(Time now);
  std::vector<HostsAction> on(const HostsEvent& event, Time now);
  // Call this when deadline() has passed. An earlier call changes nothing.
  std::vector<HostsAction> on_time(Time now);
  std::optional<Time> deadline() const;

  // These functions return the address and port at which the nodes meet, as reported by the first host.
  const std::string& address() const { return address_; }
  int port() const { return port_; }

  bool finished() const { return finished_; }
  // Describes why the agents could not be started; empty if they were started. exit_code() then returns the code for this
  // program.
  const std::string& problem() const { return problem_; }
  // Returns the exit code of the first agent that failed. The codes 80 (another node was missing) and 86 (the agent was cut
  // off) are only consequences. They are returned only if no agent has failed with another code.
  int exit_code() const;

 private:
  enum class Phase { kConnecting, kReady, kRuns, kLost, kRestarts, kEnded };
  struct HostState {
    Phase phase = Phase::kConnecting;
    std::optional<Time> answer_by{};   // deadline of the supervisor's answer
    std::optional<Time> connect_at{};  // the next attempt
    std::optional<Time> lost_at{};     // when the connection was lost
    int attempts = 0;                  // number of attempts since the loss
    int restarts = 0;
    std::vector<int> signals{};  // signals that must be sent when the host is connected again
  };

  void handle(const hosts_event::Ready& event, Time now);
  void handle(const hosts_event::Attached& event, Time now);
  void handle(const hosts_event::Unknown& event, Time now);
  void handle(const hosts_event::Refused& event, Time now);
  void handle(const hosts_event::AgentEnded& event, Time now);
  void handle(const hosts_event::Disconnected& event, Time now);
  void handle(const hosts_event::Signalled& event, Time now);

  void fail(std::size_t host, const std::string& why, int code);
  void connect(std::size_t host, bool attach, Time now);
  void start_agent(std::size_t host);
  void try_later(std::size_t host, Time now);
  void end(std::size_t host, int code, Time now);
  void stop_all(int signal, Time now);
  void print(std::size_t host, const std::string& text);
  bool others_run(std::size_t host) const;
  bool may_restart(std::size_t host) const;
  std::string seconds_of_loss() const;
  std::vector<HostsAction> take_actions();

  HostsSettings settings_;
  std::vector<HostState> hosts_;
  std::vector<HostsAction> actions_;
  std::vector<int> codes_;  // exit codes of the agents, in the order in which the agents have ended
  std::optional<Time> end_by_;
  std::size_t first_ended_ = 0;
  bool started_ = false;   // all hosts were ready, and the agents were started
  bool stopping_ = false;  // a signal was sent to the agents
  bool finished_ = false;
  std::string address_;
  int port_ = 0;
  std::string problem_;
};

}  // namespace ddprun
