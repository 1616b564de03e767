// The simulated world of simulator.hpp: hosts with clocks, the network between the hosts, their workers, and the queue of
// events. simulator.cpp contains the main loop. The simulated_*.cpp files of this folder implement the other members.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/node/record_gate.hpp"
#include "tests/rendezvous/simulation/simulator.hpp"

namespace ddprun::rendezvous::simulation {

using Nanos = std::int64_t;  // nanoseconds since the start of the simulation, independent of the clocks of the hosts
constexpr Nanos kMs = 1'000'000;
constexpr Nanos kSecond = 1000 * kMs;
constexpr Nanos kNever = INT64_MAX;
constexpr Nanos kRecovery = 120 * kSecond;  // after all faults have ended, the job must end within this time
// how long the coordinator waits until workers have ended; longer than a graceful stop, which takes up to 9 s
constexpr Nanos kReadyTimeout = 12 * kSecond;
constexpr Nanos kResume = 900 * kMs;  // how long a session waits for a new connection, by the fastest clock
// The same time by the slowest clock, plus the time that messages spend on the network. So no session waits longer than this.
constexpr Nanos kMaxResume = 1200 * kMs;
constexpr Nanos kStuckFor = 45 * kSecond;
constexpr std::size_t kLargestRelease = 2048;
constexpr std::int64_t kMaxEvents = 400000;
constexpr Nanos kHandshake = 300'000;  // duration of a TLS handshake on the server, in scenarios that lose the coordinator
constexpr Nanos kLease = 5 * kSecond;
// A guardian kills its workers at most this late after their grant has ended. A grant lasts 0.8 leases. Even on the slowest
// clock, the grant plus this delay is shorter than one lease on the fastest clock. The margin is a fiftieth of a lease.
constexpr Nanos kMaxGuardianDelay = 90 * kMs;
// after its event loop was blocked, an agent handles all waiting events within this time
constexpr Nanos kResumesWithin = 3 * kMs;
constexpr Nanos kReapedWithin = 900 * kMs;  // a guardian reaps all workers of a dead agent within this time
constexpr int kBrokenDevice = 9;            // exit code of a node that leaves because its device has failed

struct Opened {};
struct Fin {
  bool reset = false;  // true if the network has reset the connection
};
using Packet = std::variant<Opened, Fin, FromMember, FromCoordinator>;

// One direction of a connection. Packets arrive in order, as with TCP.
struct Pipe {
  std::vector<Packet> packets;
  std::size_t head = 0;
  bool pumping = false;
  Nanos last = 0;
};

struct Link {
  int end[2] = {0, 0};  // numbers of the dialing agent and of the listening agent
  std::uint32_t life[2] = {0, 0};
  LinkId id[2] = {0, 0};
  bool open[2] = {true, true};  // whether each end still considers the connection open
  Pipe pipe[2];                 // pipe[0] carries the packets of the dialing end, and pipe[1] the packets of the listening end
};

struct Agent {
  NodeId id{};
  std::uint64_t incarnation = 1;
  std::unique_ptr<Node> node;
  bool got_death_notice = false;
  // The two-node round in which this node also has the vote of the other node, because a death notice has arrived; nullopt if
  // this node has no second vote.
  std::optional<RoundId> both_votes_round{};
  std::optional<NodeId> known_id;  // the node id that this process last recorded
  // this node has given up its node id, but connections with that id may still be open
  bool gave_up = false;
  coordinator_action::SetDeathNotice death_notice;  // the death notice that the guardian of this node would send
  RestoredState disk;                               // the persistent state that the next process on this host finds
  bool remembers = true;                            // false if records can't be written, so that the next process finds none
  // only in a new container: the time at which this node started to search for a running job
  Nanos probing_since = kNever;
  // Delays messages until records are written. Used only if disks are slow.
  RecordGate gate;
  std::deque<member_action::Remember> writing;
  Nanos disk_stalls_until = 0;
  Nanos last_write = 0;
  double rate = 1;
  Nanos base = 0;
  Nanos skew = 0;
  Nanos extra_latency = 0;
  Nanos frozen_until = 0;
  // true if frozen_until applies only to the event loop; the loop then handles the waiting events in any order
  bool loop_blocks = false;
  Nanos asleep_until = 0;     // the whole host (agent, guardian and workers) is suspended until this time
  Nanos busy_until = 0;       // the agent is busy with TLS handshakes until this time
  Nanos disturbed_until = 0;  // when the last known fault of this agent or of its network ends
  bool powered = true;
  bool got_stop_signal = false;
  bool left = false;
  Nanos guardian_delay = 0;     // at most kMaxGuardianDelay
  bool must_save = false;       // this node must save, because it trained in a complete round when all nodes got a signal
  bool stuck = false;           // the workers of this node hang in the kernel
  bool end_is_pending = false;  // the workers of this node exit as soon as they no longer hang
  // if this node is the coordinator: the time since which it waits for workers of other nodes; 0 if it does not wait
  Nanos waits_since = 0;
  bool broken = false;    // a device of this node has failed, so the node leaves when its workers have ended
  bool newcomer = false;  // this node starts without a record while the job is already running, so it must not lead
  int local_world_size = 1;
  std::uint32_t life = 0;      // incremented when the process starts and when it ends
  std::uint32_t id_since = 0;  // value of `life` when this node was last started without a record, and so got a new node id
  // the arbiter has voted for the other node, and after that this node has not followed a coordinator
  bool outvoted = false;
  Nanos timer_at = kNever;
  std::map<LinkId, int> links;
  LinkId next_accepted = 1;
  std::uint64_t term_seen = 0;
  bool coordinates = false;
  // These members are used only if there is a launcher.
  std::unique_ptr<LauncherHost> host;
  std::unique_ptr<SimulatedLauncher> launcher;
  bool has_deadline = false;  // the guardian of this agent kills the workers at until_local
  bool node_is_over = false;  // the node of this agent has sent Finish
  bool hangs = false;         // the workers of the agent's round do not start to train
  // ---- The workers of this agent ----
  bool training = false;
  RoundId round{};
  Nanos until_local = 0;
  std::uint32_t job = 0;  // incremented at each start of workers
  bool ending = false;
  std::int64_t steps = 0;
};

struct Round {
  Release first;
  std::optional<RoundId> job;  // first round of this job; nullopt if no node received the previous round
  int coordinator = -1;
  std::uint32_t leadership = 0;
  std::map<std::int32_t, int> members;  // group rank -> agent
  std::map<std::int32_t, std::uint32_t> lives;
  std::map<std::int32_t, std::int32_t> offsets;
  std::set<int> training;
  bool full = false;  // true after all nodes of the round have trained at the same time
  // The following fields record what may end the round.
  std::set<int> finished;  // nodes that have reported to the coordinator that they have finished
  std::set<int> lost;      // nodes to which the coordinator no longer has a link
  bool failed = false;
  bool worker_failed = false;
  bool may_have_failed = false;  // a worker failed while it was being stopped
  Nanos done_at = 0;             // approximate time at which the workers finish if the round does not end earlier
};

// The workers of a dead agent. They run until its guardian has killed them.
struct Orphans {
  int agent = 0;
  RoundId round{};
  Nanos until = 0;
};

struct Event {
  enum class Kind {
    kTimer,
    kPump,
    kConnect,
    kTimeout,
    kFault,
    kPowerLoss,
    kWorkersFail,
    kWorkersEnd,
    kWorkersDone,
    kStart,
    kRecover,
    kSignal,
    kLeave,
    kCutOff,
    kKilled,
    kLostDuringSignals,
    kDiskFull,
    kDiskFree,
    kDeathNotice,
    kStuck,
    kUnstuck,
    kLoseCoordinator,
    kLoopBlocks,
    kSleep,
    kWake,
    kDiskStalls,
    kWritten,
    kWriteReported,
    kArbiterReceives,
    kArbiterAnswers,
    kAgentCall,
    kHostCall
  };
  Nanos time = 0;
  std::uint64_t order = 0;
  Kind kind{};
  int a = 0;
  std::int64_t b = 0;  // the meaning depends on `kind`; for example a direction or a link
  std::uint32_t life = 0;
  std::uint32_t job = 0;
  bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
};

// The state of a node just before it handles an event.
struct Before {
  const Coordinator* leads = nullptr;
  RoundId round{};
  std::int64_t away = 0;  // number of members that have no connection and get the release when they reconnect
  bool runs = false;      // true while the round is running, before its end has started
};

class World {
 public:
  explicit World(const Scenario& scenario)
      : scenario_(scenario), random_(scenario.seed * 2654435761u + 17), later_random_(scenario.seed + 4711) {
    build();
  }
  Result run();

 private:
  // ---- Random choices ----
  Nanos between(Nanos low, Nanos high) {
    return low + static_cast<Nanos>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  // Returns a random time for a fault that was added to the simulator later. These faults have a separate generator, so that
  // the choices of existing seeds stay the same.
  Nanos later_between(Nanos low, Nanos high) {
    return low + static_cast<Nanos>(later_random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool later_chance(int percent) { return later_between(0, 99) < percent; }
  int some_agent() { return static_cast<int>(between(0, std::ssize(agents_) - 1)); }
  int coordinator_now() {
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      if (agents_[i].node && agents_[i].node->coordinator() != nullptr) return static_cast<int>(i);
    }
    return some_agent();
  }

  // ---- Time ----
  Nanos local(const Agent& agent, Nanos time) const {
    return agent.base + static_cast<Nanos>(static_cast<double>(time) * agent.rate);
  }
  Nanos true_time(const Agent& agent, Nanos local_time) const {
    Nanos time = static_cast<Nanos>(static_cast<double>(local_time - agent.base) / agent.rate);
    while (local(agent, time) < local_time) ++time;
    return time;
  }
  Now now_of(const Agent& agent) const { return {Time(nanoseconds(local(agent, time_))), time_ + agent.skew}; }

  void build();
  NodeSettings settings_for(int index) const;
  void schedule(Nanos time, Event::Kind kind, int a, std::int64_t b = 0, std::uint32_t life = 0, std::uint32_t job = 0) {
    events_.push({time, next_order_++, kind, a, b, life, job});
  }
  void handle(const Event& event);
  void start(int index);
  void end_process(int index, bool silent);
  void deliver(int index, const NodeEvent& event);
  void perform(int index, std::vector<NodeAction> actions, const Before& before);
  Before before_event(const Agent& agent) const;
  void carry_out(int index, NodeAction& action);
  void send_query(int index);
  void answer(int index, const NodeQuery& query);
  void check_answer(int index, const JobAnswer& answer);
  void set_timer(int index);
  bool remember(Agent& agent, const member_action::Remember& action);

  void dial(int from, LinkId id, const Address& address);
  void connect(int link_index);
  void send(int link_index, int end, Packet packet);
  void pump(int link_index, int direction);
  void pump_later(int link_index, int direction, Nanos at);
  void arrive(int link_index, int direction, Packet packet);
  Nanos latency(int from, int to);
  struct Slow {
    Nanos until = 0;
    Nanos extra = 0;
  };
  Nanos& blocked(int from, int to) {
    return blocked_[static_cast<std::size_t>(from) * agents_.size() + static_cast<std::size_t>(to)];
  }

  void start_workers(int index, const member_action::StartWorkers& action);
  void begin_work(int index, const Release& release);
  void stop_workers(int index, bool immediately);
  void end_agent(int index, const node_action::Finish& action, bool by_itself);
  static bool is_missing(const node_action::Finish& action);
  static bool ends_the_job(const Agent& agent, const node_action::Finish& action);
  void note_job_over(int index, const node_action::Finish& action);
  void stop_requested(int index, bool saves = false);
  // ---- Launchers (simulated_host.cpp) ----
  class Host;
  struct Call {
    Event::Kind kind{};
    int agent = 0;
    std::uint32_t life = 0;
    std::function<void()> what{};
    bool waits = false;  // true if the call waits until a freeze has ended
  };
  void make_launcher(int index);
  void retire_launcher(Agent& agent);
  std::vector<std::unique_ptr<SimulatedLauncher>> retired_launchers_;
  std::vector<std::unique_ptr<LauncherHost>> retired_hosts_;
  void call_later(int index, Nanos after, std::function<void()> what, Event::Kind kind);
  void call(const Event& event);
  void hasten_calls();
  void set_deadline(int index, Nanos until_local);
  void watch_deadline(int index);
  void end_by_guardian(int index);
  void fail_in_launcher(const Event& event);
  std::map<std::int64_t, Call> calls_;
  std::int64_t next_call_ = 0;
  std::map<RoundId, std::int64_t> saved_at_;  // for each round that was saved, the step of the save
  bool node_left_ = false;                    // true if a node with workers that cannot be killed has left permanently
  void workers_gone(Agent& agent, int index);
  bool trains(const Agent& agent) const {
    if (agent.asleep_until > time_) return false;
    const bool is_stopped = agent.frozen_until + kResumesWithin > time_;
    return agent.training && !(is_stopped && local(agent, time_ - agent.guardian_delay) >= agent.until_local);
  }

  void fault();
  void kill(int victim, bool silent);
  void reset(int link_index);
  void lose_memory(int index);
  void schedule_death_notice(Agent& agent, int index, bool silent);
  void send_death_notice(const Event& event);
  // ---- Goodput (simulated_goodput.cpp) ----
  bool is_calm() const;
  bool some_round_trains() const;
  void account(Nanos until);
  Nanos idle_ = 0;  // how long a job without disturbances has not been training
  // ---- The arbiter (simulated_arbiter.cpp) ----
  struct Query {
    Ballot ballot{};
    NodeId self{};
    BallotAnswer answer = BallotAnswer::kNone;
    Nanos until = 0;  // when the node stops waiting for the answer
  };
  void build_arbiter();
  void configure_arbiter(int index, NodeSettings& settings) const;
  void query_arbiter(int index, const node_action::QueryArbiter& action);
  void arbiter_receives(const Event& event);
  void arbiter_answers(const Event& event);
  bool arbiter_is_cut_off(int index) const;
  std::mt19937_64 arbiter_random_;
  std::vector<Query> queries_;
  std::map<std::pair<NodeId, RoundId>, NodeId> arbiter_votes_;
  // For each agent, the intervals (from, to) in which the agent cannot reach the arbiter.
  std::vector<std::vector<std::pair<Nanos, Nanos>>> arbiter_away_;
  std::vector<coordinator_action::SetDeathNotice> death_notices_;
  std::mt19937_64 notice_random_;
  bool memory_chance(int percent) { return memory_random_() % 100 < static_cast<std::uint64_t>(percent); }
  void recover();

  void note_release(int index, std::uint32_t life, const Release& release, int coordinator);
  void check_training(int index);
  void check_together(int index, const RoundId& id, int other, const RoundId& other_id);
  bool started_alone_without_memory(const RoundId& id) const;
  void check_failure_is_known(const Round& round);
  void check_coordinator(int index);
  void check_message(const FromCoordinator& message);
  void note_received(int index, int sender, const FromMember& message);
  void note_lost(int index, int other);
  void note_away(int index, int other, std::uint32_t life);
  void note_back(int index, int other);
  void check_round_over(int index, const RoundId& id, const std::string& why);
  void signal(int index);
  void leave(int index, bool saves);
  void cut_off(Nanos length);
  void lose_node_during_signals(int leader);
  void get_stuck(int index);
  void unstick(int index);
  void sleep(int index, Nanos length);
  void block_loop(int index, Nanos length);
  Nanos resumes_at(const Agent& agent);
  void wake(int index);
  void lose_coordinator();
  void note_full(const Round& round);
  void stall_disk(int index);
  void write(int index, const member_action::Remember& action);
  void finish_writing(Agent& agent);
  void complete_write(int index);
  void report_write(int index, bool ok);
  void note_sent(int index, const node_action::ToDialler& sent);
  void note_closed(int index, const node_action::CloseLink& close);
  void check_waiting(Agent& agent);
  bool leader_may_miss_end(const RoundId& id) const;
  bool started_by_spares(const RoundId& id) const;
  void check_start_after_end(int index, const RoundId& id);
  void check_stopped(int index, const node_action::Finish& finish);
  void check_minority(int index, const node_action::Finish& finish);
  void check_end(int index, const node_action::Finish& finish);
  bool may_miss_end(int index) const;
  void disturb(Agent& agent, Nanos until) { agent.disturbed_until = std::max(agent.disturbed_until, until); }
  void trace_states();
  void violate(const std::string& what) {
    if (result_.violation.empty()) {
      trace_states();
      result_.violation = what;
      trace("VIOLATION: " + what);
    }
  }
  void trace(const std::string& line) {
    if (!scenario_.trace) return;
    char stamp[32];
    std::snprintf(stamp, sizeof(stamp), "%10.4f s  ", static_cast<double>(time_) / 1e9);
    result_.trace_lines.push_back(stamp + line);
  }
  // Adds a line to the trace for each message that matters for elections and rounds.
  template <class Any>
  void trace_message(int from, int to, const Any& any) {
    if (!scenario_.trace) return;
    const std::string route = name(from) + " to " + name(to) + ": ";
    if constexpr (std::is_same_v<Any, FromMember>) {
      if (const auto* hello = std::get_if<Hello>(&any)) trace(route + "hello " + describe(hello->state));
      if (std::get_if<StopRequest>(&any)) trace(route + "requests a stop");
      if (const auto* vote = std::get_if<Vote>(&any)) {
        trace(route + (vote->granted() ? "votes in term " : "no vote in term ") + std::to_string(vote->term));
      }
    } else {
      if (const auto* release = std::get_if<Release>(&any)) {
        trace(route + "release " + name(release->id) + " as " + std::to_string(release->group_rank) + " of " +
              std::to_string(release->nodes) + ", before " + describe(release->previous) +
              (release->start ? "" : ", no start") + ", restart " + std::to_string(release->budget.restart_count));
      }
      if (const auto* request = std::get_if<VoteRequest>(&any))
        trace(route + "vote for me in term " + std::to_string(request->term));
    }
  }
  static std::string describe(const Config& config) {
    return name(config.id) + (config.born == config.id.term ? "" : " of term " + std::to_string(config.born)) + " as " +
           std::to_string(config.rank) + " of " + std::to_string(config.nodes);
  }
  static std::string describe(const PersistentState& state) {
    return "promised " + std::to_string(state.promised_term) + ", knows " + describe(state.current) + ", before " +
           describe(state.previous);
  }
  static std::string name(const RoundId& id) { return std::to_string(id.term) + "/" + std::to_string(id.round); }
  static std::string name(int agent) { return "agent " + std::to_string(agent); }

  Scenario scenario_;
  std::mt19937_64 random_;
  std::mt19937_64 later_random_;
  Nanos time_ = 0;
  std::uint64_t next_order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Agent> agents_;
  std::vector<Link> links_;
  std::vector<Nanos> blocked_;
  std::map<std::pair<int, int>, Slow> slow_;  // the key is the pair of sender and receiver
  Result result_;
  std::uint64_t next_query_ = 1;
  std::int32_t identity_changes_ = 0;  // how often a node was started in such a way that it may have got a different node id
  // for each query to a single node, the number of the query and that node
  std::map<std::uint64_t, NodeId> single_node_queries_;
  // the received answers, each with the number of its query and the node that answered
  std::set<std::pair<std::uint64_t, NodeId>> answers_;

  std::int32_t min_nodes_ = 1;
  std::int32_t max_nodes_ = 1;
  std::int32_t max_restarts_ = 0;
  bool through_codec_ = false;
  bool leaving_happens_ = false;
  bool nodes_are_reclaimed_ = false;  // if true, some nodes get a signal, one at a time, and leave
  bool finishing_happens_ = false;    // if true, workers may finish while faults still occur
  bool all_are_signalled_ = false;    // if true, all nodes get a signal within 20 ms, after the last fault
  bool signals_came_ = false;
  bool lost_during_signals_ = false;
  bool workers_get_stuck_ = false;
  bool in_containers_ = false;  // if true, a node that has lost its record also has no trace of an earlier process
  Nanos coordinator_lost_ = 0;
  int alive_ = 0;  // number of processes that are running
  bool memory_is_lost_ = false;
  bool notice_was_sent_ = false;
  std::mt19937_64 block_random_;
  std::mt19937_64 memory_random_;
  bool disks_are_slow_ = false;
  bool records_were_lost_ = false;
  std::mt19937_64 disk_random_;
  Nanos jitter_ = kMs;
  Nanos faults_end_ = 0;
  bool recovering_ = false;
  bool job_over_ = false;
  Nanos job_over_at_ = 0;
  bool end_was_announced_ = false;  // true after a coordinator has announced the end of the job to a node
  int decided_by_ = 0;
  bool ended_by_itself_ = false;  // true if the first node that ended did so without a message from a coordinator
  std::map<RoundId, Round> rounds_;
  std::vector<Orphans> orphans_;
  // The connections between a coordinator and another agent that were reset. The key is the pair of agents. The value is the
  // time of the reset, and the `life` of the other agent at that time. The coordinator may give up the link some time after
  // the reset.
  std::map<std::pair<int, int>, std::pair<Nanos, std::uint32_t>> away_;
  std::vector<RoundId> released_;   // rounds that were released while the current event was handled
  std::vector<int> started_;        // agents whose workers were started while the current event was handled
  std::vector<std::string> ended_;  // for each round that ended while the current event was handled: the reason
  bool stop_was_requested_ = false;
  std::map<std::uint64_t, std::pair<int, std::uint32_t>> leader_of_term_;
};

}  // namespace ddprun::rendezvous::simulation
