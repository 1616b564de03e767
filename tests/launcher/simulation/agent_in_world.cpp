#include "tests/launcher/simulation/agent_in_world.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "common/base/overloaded.hpp"
#include "launcher/agent_state/agent_state.hpp"
#include "launcher/network/translation.hpp"

namespace ddprun::test {
namespace {

using rendezvous::simulation::LauncherContext;
using rendezvous::simulation::LauncherHost;
using rendezvous::simulation::SimulatedLauncher;
using std::chrono::milliseconds;
namespace member_action = rendezvous::member_action;
namespace node_action = rendezvous::node_action;

constexpr std::int64_t kTick = 1'000'000;  // ns
constexpr std::int64_t kTickSecond = 1000 * kTick;
constexpr std::int64_t kStepTakes = 100 * kTick;
constexpr std::int64_t kSeesStuckAfter = 20 * kTickSecond;
constexpr int kDeviceExit = 9;  // the simulator assumes that a node with this exit code leaves because of a broken device

// Settings that are the same on all nodes. The random seed determines them.
struct JobKind {
  enum class Workers { kScripts, kScriptsThatSave, kTrainer, kLive } workers;
  milliseconds shutdown_timeout;
};

JobKind kind_of(std::uint64_t seed) {
  std::mt19937_64 random(seed + 555);
  const auto workers = static_cast<JobKind::Workers>(random() % 4);
  const std::uint64_t timeout = random() % 10;
  return {workers, timeout == 0 ? milliseconds(0) : timeout < 5 ? milliseconds(3000) : milliseconds(8000)};
}

class AgentInWorld final : public SimulatedLauncher {
 public:
  AgentInWorld(LauncherHost& host, const LauncherContext& place, Flaw flaw)
      : host_(host),
        flaw_(flaw),
        kind_(kind_of(place.seed)),
        random_(place.chance),
        workers_(static_cast<std::size_t>(place.workers)),
        state_(AgentSettings{.world_size = place.workers,
                             .mode = AgentSettings::Mode::kMember,
                             .workers_have_channel = has_channel(),
                             .shutdown_timeout = kind_.shutdown_timeout,
                             .regroup_limit = milliseconds(kind_.workers == JobKind::Workers::kLive ? 4000 : 0)}) {}

  void begin() override {
    host_.in_agent(0, [this] { feed(agent_event::Begin{}); });
  }
  void get_signal(int signal) override {
    host_.in_agent(0, [this, signal] { feed(agent_event::SignalArrived{signal}); });
  }
  bool can_save() const override {
    const auto ready = [](const Worker& worker) { return worker.lives && worker.listens && !worker.finishes; };
    return kind_.workers != JobKind::Workers::kScripts && kind_.shutdown_timeout.count() > 0 && !host_.is_stuck() &&
           std::all_of(workers_.begin(), workers_.end(), ready);
  }

  void carry_out(const rendezvous::NodeAction& action) override {
    if (const auto* start = std::get_if<member_action::StartWorkers>(&action)) {
      in_order(from_node_, 0, [this, release = start->release] {
        release_ = release;
        in_a_round_ = true;
        feed(to_agent(release));
      });
    } else if (const auto* stop = std::get_if<member_action::StopWorkers>(&action)) {
      order(to_agent(*stop, 4));
    } else if (const auto* dismiss = std::get_if<member_action::DismissHeld>(&action)) {
      order(to_agent(*dismiss));
    } else if (const auto* save = std::get_if<rendezvous::StopAndSave>(&action)) {
      order(to_agent(*save));
    } else if (const auto* stop_at = std::get_if<rendezvous::StopAt>(&action)) {
      order(to_agent(*stop_at));
    } else if (const auto* finish = std::get_if<node_action::Finish>(&action)) {
      order(agent_event::JobEnded{finish->exit_code, from_peer(finish->why)});
    }
  }

  bool fail_a_worker(bool its_device) override {
    const std::vector<int> alive = alive_ranks();
    if (alive.empty()) return false;
    const int rank = alive[static_cast<std::size_t>(up_to(std::ssize(alive) - 1))];
    Worker& worker = one(rank);
    if (its_device && has_channel()) {
      send(rank, channel::WorkerError{.message = "CUDA error: uncorrectable ECC error encountered", .step = step()});
      worker.fails = true;
      die(rank, {.code = kDeviceExit, .signal = 0});
      return true;
    }
    if (chance(20)) {
      host_.in_agent(0, [this, rank, pid = worker.pid] {
        if (one(rank).pid != pid || !state_.at_work()) return;
        one(rank).fails = one(rank).hangs = true;
        feed(agent_event::HangFound{{{.rank = rank, .blame = "it makes no progress"}}});
      });
      return false;
    }
    if (has_channel()) send(rank, channel::Progress{.step = step()});
    if (has_channel() && chance(15)) {  // it is unknown which rank has the correct state
      send(rank, channel::WorkerError{.kind = channel::ErrorKind::kCorruptState,
                                      .message = "the states differ",
                                      .step = step(),
                                      .others_suspect = true});
    }
    worker.fails = true;
    die(rank, chance(70) ? ExitStatus{.code = 7, .signal = 0} : ExitStatus{.code = 0, .signal = SIGKILL});
    return false;
  }

  void finish_workers() override {
    const std::int64_t most = chance(50) ? 10 * kTick : 2 * kTickSecond;
    for (const int rank : alive_ranks()) {
      one(rank).finishes = true;
      host_.on_host(up_to(most), [this, rank, pid = one(rank).pid] {
        Worker& worker = one(rank);
        if (worker.pid != pid || !worker.lives || worker.stop_requested || worker.waits) return;
        if (has_channel() && !worker.listens) send(rank, channel::Hello{});
        if (has_channel()) send(rank, channel::PhaseChange{.phase = channel::Phase::kDone, .step = step()});
        worker.is_done = true;
        die(rank, {});
      });
    }
  }

  void guardian_ends_workers() override {
    for (const int rank : alive_ranks()) die(rank, {.code = 0, .signal = SIGKILL}, 4.0);
  }

  void release_from_kernel() override {
    host_.on_host(kTick, [this] {
      for (int rank = 0; rank < std::ssize(workers_); ++rank) {
        if (const auto status = std::exchange(one(rank).end_is_pending, std::nullopt)) die(rank, *status);
      }
    });
  }

 private:
  struct Worker {
    std::int64_t pid = 0;
    bool lives = false;
    bool listens = false;  // the worker has connected to the agent and reported its capabilities
    bool waits = false;    // the worker is held: it keeps its state until the next round
    bool stop_requested = false;
    bool is_killed = false;
    bool fails = false;  // true if the worker fails by itself and not because of a stop
    bool hangs = false;
    bool may_have_failed = false;
    bool finishes = false;
    bool is_done = false;
    bool has_saved = false;
    bool starts = false;            // the fork of this worker failed, and the agent has not received that error yet
    bool has_sent_message = false;  // the agent has received the worker's exit, so it drops later messages
    std::optional<ExitStatus> last{};
    std::optional<ExitStatus> end_is_pending{};  // exit status of a worker that hangs in the kernel and cannot exit yet
  };

  Worker& one(int rank) { return workers_[static_cast<std::size_t>(rank)]; }
  bool has_channel() const { return kind_.workers >= JobKind::Workers::kTrainer; }
  std::int64_t up_to(std::int64_t most) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(most + 1)); }
  bool chance(int percent) { return up_to(99) < percent; }
  std::int64_t step() const { return host_.true_time() / kStepTakes; }
  std::vector<int> alive_ranks() const {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      if (workers_[rank].lives && !workers_[rank].end_is_pending) ranks.push_back(static_cast<int>(rank));
    }
    return ranks;
  }
  static bool works(const Worker& w) { return w.lives && !w.waits && !w.end_is_pending; }
  bool any_works() const { return std::any_of(workers_.begin(), workers_.end(), works); }
  Instant instant() const {
    const rendezvous::Now now = host_.now();
    return {std::chrono::steady_clock::time_point(now.steady.time_since_epoch()), now.realtime_ns};
  }

  // Messages of one channel are handled in the order in which they were sent, even if the agent's event loop is blocked for a
  // while.
  using Way = std::deque<std::function<void()>>;
  void in_order(Way& way, std::int64_t after, std::function<void()> what) {
    way.push_back(std::move(what));
    host_.in_agent(after, [&way] {
      const std::function<void()> next = std::move(way.front());
      way.pop_front();
      next();
    });
  }
  void send_to_node(rendezvous::MemberEvent event) {
    in_order(to_node_, 0, [this, event = std::move(event)] { host_.to_node(event); });
  }

  // ---- orders from the node ----

  void order(AgentEvent event) {
    in_order(from_node_, 0, [this, event = std::move(event)] {
      const auto* stop = std::get_if<agent_event::StopOrdered>(&event);
      if (stop != nullptr) expect_end();
      if (std::holds_alternative<agent_event::HeldDismissed>(event)) dismissed_ = true;
      if (flaw_ == Flaw::kIgnoresSaveOrders && std::holds_alternative<agent_event::SaveOrdered>(event)) return;
      if (flaw_ == Flaw::kKeepsDismissed && std::holds_alternative<agent_event::HeldDismissed>(event)) return;
      feed(event);
      if (flaw_ == Flaw::kIsOverEarly && stop != nullptr && any_works()) {
        send_to_node(to_member(agent_action::ReportRoundOver{}, kMasterPort));
      }
      if (flaw_ == Flaw::kEndsBeforeHeld && std::holds_alternative<agent_event::JobEnded>(event) && !state_.finished()) {
        carry(agent_action::Finish{std::get<agent_event::JobEnded>(event).exit_code});
      }
    });
  }

  void feed(AgentEvent event) {
    if (state_.finished()) return;
    auto* exited = std::get_if<agent_event::WorkerExited>(&event);
    if (flaw_ == Flaw::kFailsAfterCutOff && exited != nullptr) exited->unanswered_s.reset();
    std::vector<AgentAction> actions;
    try {
      actions = state_.on(event, instant());
    } catch (const std::exception& error) {
      return host_.violate(std::string("an agent fails: ") + error.what());
    }
    const auto is_hold = [](const AgentAction& action) {
      const auto* trace = std::get_if<agent_action::SendMessage>(&action);
      return trace != nullptr && std::holds_alternative<channel::Hold>(trace->message);
    };
    holds_now_ = std::any_of(actions.begin(), actions.end(), is_hold);
    for (const AgentAction& action : actions) {
      std::visit([this](const auto& concrete) { carry(concrete); }, action);
    }
    const auto* found = std::get_if<agent_event::RoundReleased>(&event);
    if (found == nullptr) return;
    for (int rank = 0; rank < std::ssize(workers_); ++rank) {
      if (host_.training() && one(rank).has_sent_message)
        host_.violate("a round continues without rank " + std::to_string(rank));
    }
  }

  void carry(const agent_action::StartRound&) {
    host_.work_begins(release_);
    dismissed_ = saves_ = false;
    forms_group_ = true;
    host_.hangs(false);
    for (int rank = 0; rank < std::ssize(workers_); ++rank) start(rank);
  }
  void carry(const agent_action::ContinueRound&) {
    if (std::exchange(dismissed_, false)) host_.violate("workers with dismissed state continue");
    host_.work_begins(release_);
    saves_ = false;
    forms_group_ = host_.recovering() || !chance(8);
    host_.hangs(true);
  }
  void carry(const agent_action::StartWorker& action) {
    if (flaw_ != Flaw::kReplacesNone) start(action.rank);
  }
  void carry(const agent_action::SendSignal& action) {
    host_.is_stopping();
    for (const int rank : action.ranks) on_signalled(rank, action.signal);
  }
  void carry(const agent_action::Sweep& action) {
    if (!alive_ranks().empty()) host_.violate("a round is swept while a worker runs");
    const std::int64_t takes =
        action.how == agent_action::Sweep::How::kStop ? up_to(3 * kTickSecond) : kTick + up_to(20 * kTick);
    host_.in_agent(takes, [this, number = ++sweeps_] {
      if (number == sweeps_) feed(agent_event::RoundSwept{});
    });
  }
  void carry(const agent_action::SetTimer& action) {
    if (flaw_ == Flaw::kNeverKills && action.timer == AgentTimer::kKill) return;
    if (flaw_ == Flaw::kNeverEndsRegroup && action.timer == AgentTimer::kRegroup) return;
    const std::uint64_t number = timers_[action.timer] = ++timers_set_;
    host_.in_agent(std::chrono::nanoseconds(action.after).count(), [this, number, timer = action.timer] {
      const auto armed = timers_.find(timer);
      if (armed == timers_.end() || armed->second != number) return;
      timers_.erase(armed);
      feed(agent_event::TimerFired{timer});
    });
  }
  void carry(const agent_action::CancelTimer& action) { timers_.erase(action.timer); }
  void carry(const agent_action::SendMessage& action) {
    for (const int rank : action.ranks) {
      if (!one(rank).lives) continue;
      std::visit(
          Overloaded{[&](const channel::Stop& stop) {
                       if (stop.mode == channel::Stop::Mode::kSave) answer_stop(rank);
                     },
                     [&](const channel::StopAt& stop) { save(rank, stop.step); }, [&](const channel::Hold&) { hold(rank); },
                     [&](const channel::Regroup& regroup) { rejoin(rank, regroup.generation); },
                     Ignored<channel::IgnoreSignal, channel::AssignRank, channel::PositionRequest, channel::StoreReply>{}},
          action.message);
    }
  }
  void carry(const agent_action::ReportFailure& action) {
    host_.trace("reports " + action.failure.message + " " + std::to_string(action.failure.rank));
    if (flaw_ != Flaw::kHidesFailures) send_to_node(to_member(action));
  }
  void carry(const agent_action::ReportRoundOver& action) {
    using How = agent_action::ReportRoundOver::How;
    if (flaw_ == Flaw::kHidesHeld && holds_now_) return;
    owes_end_ = in_a_round_ = false;
    agent_action::ReportRoundOver over = action;
    host_.trace("reports that the round is over on this node");
    const auto ended_well = [](const Worker& w) { return !w.last || w.last->ok(); };
    if (flaw_ == Flaw::kCallsStoppedDone && over.how == How::kEnded &&
        std::all_of(workers_.begin(), workers_.end(), ended_well))
      over.how = How::kDone;
    if (flaw_ == Flaw::kCallsEndedSaved && over.how == How::kEnded && saves_) over.how = How::kSaved;
    // If the workers of a node are held, the node reports the end of its round before a killed replacement has exited. That
    // replacement does not count as running.
    const auto is_left = [&](const Worker& w) { return works(w) && !(over.holds && w.is_killed); };
    if (std::any_of(workers_.begin(), workers_.end(), is_left))
      host_.violate("a round is reported as over while a worker runs");
    const auto done = [](const Worker& w) { return w.is_done; };
    const auto saved = [](const Worker& w) { return w.is_done || w.has_saved; };
    if (over.how == How::kDone && !std::all_of(workers_.begin(), workers_.end(), done))
      host_.violate("a round is reported as done that is not");
    if (over.how == How::kSaved && !std::any_of(workers_.begin(), workers_.end(), saved))
      host_.violate("a round is reported as saved that is not");
    host_.no_deadline();
    host_.hangs(false);
    send_to_node(to_member(over, kMasterPort));
  }
  void carry(const agent_action::ReportSignal& action) {
    if (flaw_ != Flaw::kHidesSignals) send_to_node(to_member(action));
  }
  void carry(const agent_action::ReportSteps& action) {
    if (flaw_ == Flaw::kHidesSteps) return;
    send_to_node(to_member(action));
    if (flaw_ == Flaw::kSavesAtOwnStep && action.started >= 0) order(agent_event::StepAgreed{action.started});
  }
  void carry(const agent_action::Emit& action) {
    if (const auto* over = std::get_if<RunEnded>(&action.event)) why_ = over->why;
    if (std::holds_alternative<RegroupFailed>(action.event)) host_.round_is_lost();
    if (std::holds_alternative<Regrouped>(action.event)) host_.hangs(false);
  }
  void carry(const agent_action::Finish& action) {
    if (!alive_ranks().empty()) host_.violate("an agent ends before its workers");
    host_.finish(action.exit_code, why_);
  }
  // Multi-node jobs have no standbys, so the agent must never request these three actions.
  void carry(const agent_action::TakeOver&) { host_.violate("a member has a standby"); }
  void carry(const agent_action::StartStandby&) { host_.violate("a member has a standby"); }
  void carry(const agent_action::DismissStandbys&) { host_.violate("a member has a standby"); }

  // After a request to end the round, a node must report within 20 s that its workers have ended.
  void expect_end() {
    if (std::exchange(owes_end_, in_a_round_) || !in_a_round_) return;
    owed_for_ = 0;
    wait_for_end();
  }
  void wait_for_end() {
    if (!owes_end_) return;
    if (host_.is_stuck()) owed_for_ = 0;
    if (owed_for_++ > 20) return host_.violate("an agent does not report that its workers have ended");
    host_.in_agent(kTickSecond, [this] { wait_for_end(); });
  }

  // ---- the workers ----

  void start(int rank) {
    if (one(rank).lives) return host_.violate("rank " + std::to_string(rank) + " is started twice");
    one(rank) = Worker{.pid = ++pids_, .lives = true};
    const std::int64_t pid = one(rank).pid;
    if (!host_.recovering() && up_to(499) == 0) {
      one(rank).lives = false;
      one(rank).starts = true;
      return host_.in_agent(kTick, [this, rank] {
        one(rank).starts = false;
        host_.worker_has_failed();
        if (!any_works()) host_.work_ends();
        feed(
            agent_event::SpawnFailed{.rank = rank, .error = EAGAIN, .message = "no process", .time_ns = instant().realtime_ns});
      });
    }
    if (kind_.workers == JobKind::Workers::kScripts) return;
    host_.on_host((20 + up_to(300)) * kTick, [this, rank, pid, generation = static_cast<int>(release_.id.round)] {
      if (one(rank).pid != pid || !one(rank).lives) return;
      one(rank).listens = true;
      if (kind_.workers == JobKind::Workers::kScriptsThatSave) return send(rank, channel::SavesOnStop{});
      send(rank, channel::Hello{});
      if (kind_.workers == JobKind::Workers::kLive) send(rank, channel::Regroupable{});
      send(rank, channel::PhaseChange{.phase = channel::Phase::kRunning, .step = step()});
      if (forms_group_) send(rank, channel::GroupFormed{generation, step()});
    });
  }

  void send(int rank, channel::FromWorker message) {
    in_order(from_workers_, 0, [this, rank, pid = one(rank).pid, message = std::move(message)] {
      if (one(rank).pid == pid && !one(rank).has_sent_message) feed(agent_event::WorkerMessageReceived{rank, message});
    });
  }

  void die(int rank, ExitStatus status, std::optional<double> unanswered_s = std::nullopt) {
    Worker& worker = one(rank);
    if (!worker.lives || worker.end_is_pending) return;
    if (host_.is_stuck()) {
      worker.end_is_pending = status;
      if (!any_works()) host_.work_ends();
      return host_.in_agent(kSeesStuckAfter, [this, rank, pid = worker.pid] { see_stuck(rank, pid); });
    }
    worker.lives = false;
    worker.last = status;
    if (!any_works()) host_.work_ends();
    in_order(from_workers_, kTick, [this, rank, status, unanswered_s, pid = worker.pid] {
      Worker& ended = one(rank);
      if (ended.pid != pid) return;
      ended.has_sent_message = true;
      if (ended.fails) host_.worker_has_failed();
      if (ended.may_have_failed) host_.worker_may_have_failed();
      if (!any_works()) host_.work_ends();  // a worker may have ended before its round started
      feed(agent_event::WorkerExited{
          .rank = rank, .pid = pid, .status = status, .time_ns = instant().realtime_ns, .unanswered_s = unanswered_s});
    });
  }

  void see_stuck(int rank, std::int64_t pid) {
    if (one(rank).pid != pid || !one(rank).end_is_pending) return;
    host_.worker_has_failed();
    host_.leaves_permanently();
    feed(agent_event::WorkerStuck{rank, pid, "it hangs in the kernel"});
  }

  void on_signalled(int rank, int signal) {
    Worker& worker = one(rank);
    // The worker has exited before it got the signal, but the agent learns of the exit later. So the exit may or may not count
    // as a failure.
    if (!worker.lives && !worker.hangs && std::exchange(worker.fails, false)) worker.may_have_failed = true;
    if (!worker.lives) return;
    if (signal == SIGKILL) {
      if (!worker.fails) worker.stop_requested = true;
      worker.is_killed = true;
      const std::int64_t takes = host_.kill_takes();
      const auto kill = [this, rank, pid = worker.pid] {
        if (one(rank).pid == pid) die(rank, {.code = 0, .signal = SIGKILL});
      };
      return takes == 0 ? kill() : host_.on_host(takes, kill);
    }
    worker.stop_requested = true;
    if (chance(3)) return;  // the worker ignores the signal
    const std::int64_t takes = kTick + up_to(chance(85) ? 300 * kTick : 9 * kTickSecond);
    const ExitStatus status = chance(80)      ? ExitStatus{.code = 0, .signal = signal}
                              : has_channel() ? ExitStatus{.code = 1, .signal = 0}
                                              : ExitStatus{};
    host_.on_host(takes, [this, rank, status, pid = worker.pid] {
      if (one(rank).pid == pid) die(rank, status);
    });
  }

  void answer_stop(int rank) {
    saves_ = true;
    host_.is_stopping();
    host_.on_host(kTick + up_to(40 * kTick), [this, rank, pid = one(rank).pid] {
      if (one(rank).pid == pid && one(rank).lives) send(rank, channel::StopReady{step()});
    });
  }

  void save(int rank, std::int64_t at) {
    host_.saves_at(at);
    one(rank).stop_requested = true;
    host_.on_host((50 + up_to(600)) * kTick, [this, rank, pid = one(rank).pid] {
      Worker& worker = one(rank);
      if (worker.pid != pid || !worker.lives) return;
      worker.has_saved = true;
      send(rank, channel::PhaseChange{.phase = channel::Phase::kSaving, .step = step()});
      die(rank, {.code = kind_.workers == JobKind::Workers::kScriptsThatSave && chance(50) ? 0 : 85, .signal = 0});
    });
  }

  void hold(int rank) {
    one(rank).waits = true;
    one(rank).finishes = false;
    if (!any_works()) host_.work_ends();
  }

  void rejoin(int rank, int generation) {
    one(rank).waits = false;
    host_.on_host((10 + up_to(300)) * kTick, [this, rank, generation, pid = one(rank).pid] {
      if (one(rank).pid != pid || !one(rank).lives || one(rank).waits) return;
      send(rank, channel::RegroupReady{generation, step()});
      if (forms_group_) send(rank, channel::GroupFormed{generation, step()});
    });
  }

  Way from_node_{};
  Way to_node_{};
  Way from_workers_{};
  static constexpr std::uint16_t kMasterPort = 2000;
  LauncherHost& host_;
  Flaw flaw_;
  JobKind kind_;
  std::mt19937_64 random_;
  std::vector<Worker> workers_;
  AgentState state_;
  rendezvous::Release release_{};
  std::map<AgentTimer, std::uint64_t> timers_{};
  std::uint64_t timers_set_ = 0;
  std::uint64_t sweeps_ = 0;
  std::int64_t pids_ = 100;
  std::string why_{};
  bool forms_group_ = true;
  bool dismissed_ = false;
  bool saves_ = false;
  bool holds_now_ = false;
  bool in_a_round_ = false;  // true from the node's request to start workers until the agent reports the end of these workers
  bool owes_end_ = false;
  int owed_for_ = 0;  // seconds since the node requested the end of the round
};

}  // namespace

rendezvous::simulation::LauncherFactory production_agents(Flaw flaw) {
  return [flaw](LauncherHost& host, const LauncherContext& place) -> std::unique_ptr<SimulatedLauncher> {
    return std::make_unique<AgentInWorld>(host, place, flaw);
  };
}

}  // namespace ddprun::test
