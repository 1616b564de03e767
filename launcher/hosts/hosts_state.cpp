#include "launcher/hosts/hosts_state.hpp"

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/base/exit_code.hpp"
#include "common/base/signal_name.hpp"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr int kSignalBase = 128;  // an agent that signal N killed counts as exit code 128 + N

// Returns the pause before an attempt to connect again.
milliseconds pause_before(int attempt) {
  constexpr milliseconds kFirst{500};
  constexpr int kMaxDoublings = 5;  // 16 s
  return kFirst * (1 << std::min(attempt, kMaxDoublings));
}

bool is_consequence(int code) {
  return code == static_cast<int>(ExitCode::kPeersMissing) || code == static_cast<int>(ExitCode::kMinority);
}

// Returns true for the exit codes with which an agent ends before it has joined the other agents.
bool never_joined(int code) {
  return code == static_cast<int>(ExitCode::kUsage) || code == static_cast<int>(ExitCode::kTokenRefused);
}

}  // namespace

HostsState::HostsState(HostsSettings settings) : settings_(std::move(settings)), hosts_(settings_.names.size()) {}

std::vector<HostsAction> HostsState::start(Time now) {
  for (std::size_t i = 0; i < hosts_.size(); ++i) connect(i, false, now);
  return take_actions();
}

std::vector<HostsAction> HostsState::on(const HostsEvent& event, Time now) {
  if (!finished_) std::visit([&](const auto& one) { handle(one, now); }, event);
  return take_actions();
}

std::vector<HostsAction> HostsState::on_time(Time now) {
  for (std::size_t i = 0; i < hosts_.size() && !finished_; ++i) {
    HostState& host = hosts_[i];
    if (host.answer_by && *host.answer_by <= now) {
      host.answer_by.reset();
      const std::string why =
          "no answer for " +
          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(settings_.answer_timeout).count()) +
          " s after the start of ssh";
      if (!started_) {
        fail(i, why + ": check that the host responds to ssh " + settings_.names[i] + " true",
             static_cast<int>(ExitCode::kPeersMissing));
      } else {
        actions_.emplace_back(hosts_action::Close{i});
        try_later(i, now);
      }
    } else if (host.connect_at && *host.connect_at <= now) {
      connect(i, host.phase == Phase::kLost, now);
    }
  }
  if (end_by_ && *end_by_ <= now && !finished_) {
    end_by_.reset();
    print(first_ended_, "its agent has ended with a failure, so the agents that still run on other hosts are stopped");
    stop_all(SIGTERM, now);
  }
  return take_actions();
}

std::optional<HostsState::Time> HostsState::deadline() const {
  std::optional<Time> first = end_by_;
  const auto consider = [&](const std::optional<Time>& time) {
    if (time && (!first || *time < *first)) first = time;
  };
  for (const HostState& host : hosts_) {
    consider(host.answer_by);
    consider(host.connect_at);
  }
  return finished_ ? std::nullopt : first;
}

int HostsState::exit_code() const {
  const auto is_cause = [](int code) { return code != 0 && !is_consequence(code); };
  auto found = std::ranges::find_if(codes_, is_cause);
  if (found == codes_.end()) found = std::ranges::find_if(codes_, [](int code) { return code != 0; });
  return found == codes_.end() ? 0 : *found;
}

void HostsState::handle(const hosts_event::Ready& event, Time now) {
  HostState& host = hosts_[event.host];
  host.answer_by.reset();
  if (started_) {
    if (stopping_) {
      actions_.emplace_back(hosts_action::Close{event.host});
      return end(event.host, static_cast<int>(ExitCode::kPeersMissing), now);
    }
    return start_agent(event.host);
  }
  host.phase = Phase::kReady;
  if (event.host == 0) {
    address_ = event.address;
    port_ = event.port;
  }
  if (!std::ranges::all_of(hosts_, [](const HostState& one) { return one.phase == Phase::kReady; })) return;
  started_ = true;
  for (std::size_t i = 0; i < hosts_.size(); ++i) start_agent(i);
}

void HostsState::handle(const hosts_event::Attached& event, Time /*now*/) {
  HostState& host = hosts_[event.host];
  host.answer_by.reset();
  host.lost_at.reset();
  host.attempts = 0;
  host.phase = Phase::kRuns;
  print(event.host, "connected again");
  for (const int signal : std::exchange(host.signals, {})) actions_.emplace_back(hosts_action::SendSignal{event.host, signal});
}

void HostsState::handle(const hosts_event::Unknown& event, Time now) {
  hosts_[event.host].answer_by.reset();
  actions_.emplace_back(hosts_action::Close{event.host});
  if (!may_restart(event.host) || (hosts_.size() > 1 && !others_run(event.host))) {
    print(event.host, "its agent has ended without a result");
    return end(event.host, static_cast<int>(ExitCode::kPeersMissing), now);
  }
  print(event.host,
        "its agent has ended without a result, for example because the machine was rebooted; the agent is started again");
  ++hosts_[event.host].restarts;
  hosts_[event.host].phase = Phase::kRestarts;
  connect(event.host, false, now);
}

void HostsState::handle(const hosts_event::Refused& event, Time now) {
  hosts_[event.host].answer_by.reset();
  if (!started_) return fail(event.host, event.why, static_cast<int>(ExitCode::kUsage));
  print(event.host, event.why);
  actions_.emplace_back(hosts_action::Close{event.host});
  end(event.host, static_cast<int>(ExitCode::kUsage), now);
}

void HostsState::handle(const hosts_event::AgentEnded& event, Time now) {
  const int code = event.by_signal ? kSignalBase + event.number : event.number;
  const bool recoverable = event.by_signal || code == static_cast<int>(ExitCode::kMinority);
  if (!recoverable || !may_restart(event.host) || !others_run(event.host)) {
    if (event.by_signal && !stopping_) print(event.host, signal_name(event.number) + " killed its agent");
    return end(event.host, code, now);
  }
  print(event.host, (event.by_signal ? signal_name(event.number) + " killed its agent"
                                     : "its agent was cut off from the other nodes (exit code " + std::to_string(code) + ")") +
                        "; the agent is started again");
  ++hosts_[event.host].restarts;
  hosts_[event.host].phase = Phase::kRestarts;
  actions_.emplace_back(hosts_action::Close{event.host});
  connect(event.host, false, now);
}

void HostsState::handle(const hosts_event::Disconnected& event, Time now) {
  HostState& host = hosts_[event.host];
  host.answer_by.reset();
  if (host.phase == Phase::kEnded) return;
  if (!started_)
    return fail(event.host, event.why, static_cast<int>(event.is_usage ? ExitCode::kUsage : ExitCode::kPeersMissing));
  if (host.phase == Phase::kRuns) {
    host.phase = Phase::kLost;
    host.lost_at = now;
    print(event.host, "the connection was lost (" + event.why + "). The agent continues without it for " + seconds_of_loss() +
                          " s, and then saves and ends; connecting again");
  }
  try_later(event.host, now);
}

void HostsState::handle(const hosts_event::Signalled& event, Time now) {
  if (started_) return stop_all(event.signal, now);
  for (std::size_t i = 0; i < hosts_.size(); ++i) actions_.emplace_back(hosts_action::Close{i});
  codes_.push_back(kSignalBase + event.signal);
  finished_ = true;
}

void HostsState::fail(std::size_t host, const std::string& why, int code) {
  problem_ = "host " + settings_.names[host] + ": " + why;
  codes_.push_back(code);
  for (std::size_t i = 0; i < hosts_.size(); ++i) actions_.emplace_back(hosts_action::Close{i});
  finished_ = true;
}

void HostsState::connect(std::size_t host, bool attach, Time now) {
  hosts_[host].connect_at.reset();
  hosts_[host].answer_by = now + settings_.answer_timeout;
  actions_.emplace_back(hosts_action::Connect{host, attach});
}

void HostsState::start_agent(std::size_t host) {
  hosts_[host].phase = Phase::kRuns;
  hosts_[host].attempts = 0;
  hosts_[host].lost_at.reset();
  actions_.emplace_back(hosts_action::StartAgent{host});
}

// While other agents run, they may wait for this node, so the attempts continue. If no other agent runs, the attempts stop
// some time after the supervisor has ended its agent.
void HostsState::try_later(std::size_t host, Time now) {
  HostState& state = hosts_[host];
  if (!state.lost_at) state.lost_at = now;
  if (!others_run(host) && now - *state.lost_at > settings_.lost_timeout + settings_.end_timeout) {
    print(host, "no connection for " +
                    std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - *state.lost_at).count()) +
                    " s: the result of its agent is unknown");
    return end(host, static_cast<int>(ExitCode::kPeersMissing), now);
  }
  state.connect_at = now + pause_before(state.attempts++);
}

void HostsState::end(std::size_t host, int code, Time now) {
  HostState& state = hosts_[host];
  state.phase = Phase::kEnded;
  state.answer_by.reset();
  state.connect_at.reset();
  codes_.push_back(code);
  if (std::ranges::all_of(hosts_, [](const HostState& one) { return one.phase == Phase::kEnded; })) {
    finished_ = true;
    return;
  }
  if (code == 0 || stopping_ || end_by_) return;
  first_ended_ = host;
  if (!never_joined(code)) {
    end_by_ = now + settings_.end_timeout;
    return;
  }
  print(host, "its agent has ended with exit code " + std::to_string(code) + ": the agents on the other hosts are stopped");
  stop_all(SIGTERM, now);
}

void HostsState::stop_all(int signal, Time now) {
  stopping_ = true;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (hosts_[i].phase == Phase::kRuns) actions_.emplace_back(hosts_action::SendSignal{i, signal});
    if (hosts_[i].phase == Phase::kLost) hosts_[i].signals.push_back(signal);
    if (hosts_[i].phase != Phase::kRestarts) continue;
    actions_.emplace_back(hosts_action::Close{i});
    end(i, static_cast<int>(ExitCode::kPeersMissing), now);
  }
}

void HostsState::print(std::size_t host, const std::string& text) {
  actions_.emplace_back(hosts_action::Print{"host " + settings_.names[host] + ": " + text});
}

bool HostsState::others_run(std::size_t host) const {
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (i != host && hosts_[i].phase == Phase::kRuns) return true;
  }
  return false;
}

bool HostsState::may_restart(std::size_t host) const {
  return !stopping_ && hosts_[host].restarts < settings_.max_restarts;
}

std::string HostsState::seconds_of_loss() const {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(settings_.lost_timeout).count());
}

std::vector<HostsAction> HostsState::take_actions() {
  return std::exchange(actions_, {});
}

}  // namespace ddprun
