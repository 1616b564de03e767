// The world of simulator.hpp: hosts with clocks, the network between them, their workers, and the event queue. simulator.cpp
// runs it; simulated_network.cpp, simulated_faults.cpp and simulated_invariants.cpp contain the rest of its members.
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

using Nanos = std::int64_t;  // true time since the start of the simulation
constexpr Nanos kMs = 1'000'000;
constexpr Nanos kSecond = 1000 * kMs;
constexpr Nanos kNever = INT64_MAX;
constexpr Nanos kRecovery = 120 * kSecond;     // from the end of the faults to the end of the job
constexpr Nanos kReadyTimeout = 12 * kSecond;  // a graceful stop takes up to 9 s
constexpr Nanos kResume = 900 * kMs;           // by the fastest clock
constexpr Nanos kResumeAtMost = 1200 * kMs;    // by the slowest clock, plus messages in flight
constexpr Nanos kStuckFor = 45 * kSecond;
constexpr std::size_t kLargestRelease = 2048;
constexpr std::int64_t kMostEvents = 400000;
constexpr Nanos kHandshake = 300'000;  // per handshake at a TLS server, if coordinators are lost
constexpr Nanos kLease = 5 * kSecond;
// Largest delay of a guardian. With the slowest and the fastest clock, 0.8 leases end a fiftieth of a lease before 1.0 lease
// does.
constexpr Nanos kGuardianLate = 90 * kMs;
constexpr Nanos kGoesOnWithin = 3 * kMs;    // until an agent is informed of its guardian's actions
constexpr Nanos kReapedWithin = 900 * kMs;  // the workers of a dead agent
constexpr int kBrokenDevice = 9;            // exit code of a node that leaves because of a broken device

struct Opened {};
struct Fin {
  bool reset = false;  // by the network
};
using Packet = std::variant<Opened, Fin, FromMember, FromCoordinator>;

// One direction of a connection: ordered, like TCP.
struct Pipe {
  std::vector<Packet> packets;
  std::size_t head = 0;
  bool pumping = false;
  Nanos last = 0;
};

struct Link {
  int end[2] = {0, 0};  // agents: dialing, listening
  std::uint32_t life[2] = {0, 0};
  LinkId id[2] = {0, 0};
  bool open[2] = {true, true};  // from the view of that end
  Pipe pipe[2];                 // [0]: from the dialing end
};

struct Agent {
  NodeId id{};
  std::uint64_t incarnation = 1;
  std::unique_ptr<Node> node;
  bool heard_farewell = false;
  std::optional<RoundId> has_both_votes_in{};  // a round of two, after the farewell of the other node
  std::optional<NodeId> known_as;              // node id in this life
  bool gave_up = false;                        // it gave up that id: connections of the old id may still be open
  coordinator_action::Entrust entrusted;       // to its guardian
  Memory disk;                                 // memory for the next process here
  bool remembers = true;                       // the record can be written
  Nanos asks_since = kNever;                   // start of its query whether the job runs, in a new container
  // Used if disks are slow.
  RecordGate gate;
  std::deque<member_action::Remember> writing;
  Nanos disk_stalls_until = 0;
  Nanos last_write = 0;
  double rate = 1;
  Nanos base = 0;
  Nanos skew = 0;
  Nanos extra_latency = 0;
  Nanos frozen_until = 0;
  bool loop_blocks = false;   // only the loop blocks, not the process: waiting events are handled in any order afterwards
  Nanos asleep_until = 0;     // the whole host: agent, guardian and workers
  Nanos busy_until = 0;       // busy with handshakes
  Nanos disturbed_until = 0;  // by its own faults, or those of its network
  bool powered = true;
  bool asked_to_stop = false;
  bool left = false;
  Nanos guardian_late = 0;  // at most kGuardianLate
  bool must_save = false;   // it trained in a full round when all nodes were signaled
  bool stuck = false;       // its workers don't run any more, but are stuck in the kernel
  bool owes_end = false;    // its workers would have ended
  Nanos waits_since = 0;    // since when its coordinator waits for the workers of others
  bool broken = false;      // it has a broken device: it leaves when its workers have ended
  bool newcomer = false;    // starts without memory where the job is known to be: it leads nothing
  int local_world_size = 1;
  std::uint32_t life = 0;      // counts starts and ends of the process
  std::uint32_t id_since = 0;  // the life in which it had no memory and got a new id
  bool outvoted = false;       // the arbiter has chosen the other node, and it has followed no coordinator since
  Nanos timer_at = kNever;
  std::map<LinkId, int> links;
  LinkId next_accepted = 1;
  std::uint64_t term_seen = 0;
  bool coordinates = false;
  // With a launcher.
  std::unique_ptr<LauncherHost> host;
  std::unique_ptr<SimulatedLauncher> launcher;
  bool has_deadline = false;  // its guardian watches until_local
  bool node_is_over = false;  // its node has sent Finish
  bool hangs = false;         // its round does not start to train
  // ---- its workers ----
  bool training = false;
  RoundId round{};
  Nanos until_local = 0;
  std::uint32_t job = 0;  // counts starts of workers
  bool ending = false;
  std::int64_t steps = 0;
};

struct Round {
  Release first;
  std::optional<RoundId> job;  // the job's first round; nullopt: no node got the previous round
  int coordinator = -1;
  std::uint32_t leadership = 0;
  std::map<std::int32_t, int> members;  // group rank -> agent
  std::map<std::int32_t, std::uint32_t> lives;
  std::map<std::int32_t, std::int32_t> offsets;
  std::set<int> training;
  bool full = false;  // all trained at the same time
  // Possible reasons for its end.
  std::set<int> finished;  // according to its coordinator
  std::set<int> lost;      // its coordinator has no link to them any more
  bool failed = false;
  bool worker_failed = false;
  bool may_have_failed = false;  // a worker failed while it was being stopped
  Nanos done_at = 0;             // approximate time at which workers finish, if they do
};

// Workers of a dead agent, until its guardian has killed them.
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
    kLostAmidSignals,
    kDiskFull,
    kDiskFree,
    kFarewell,
    kStuck,
    kUnstuck,
    kLoseCoordinator,
    kLoopBlocks,
    kSleep,
    kWake,
    kDiskStalls,
    kWritten,
    kWrittenHeard,
    kArbiterHears,
    kArbiterAnswers,
    kAgentCall,
    kHostCall
  };
  Nanos time = 0;
  std::uint64_t order = 0;
  Kind kind{};
  int a = 0;
  std::int64_t b = 0;  // a direction, a link
  std::uint32_t life = 0;
  std::uint32_t job = 0;
  bool operator>(const Event& other) const { return time != other.time ? time > other.time : order > other.order; }
};

// The state of a node before an event.
struct Before {
  const Coordinator* leads = nullptr;
  RoundId round{};
  std::int64_t away = 0;  // members that are away get a round when they are back
  bool runs = false;      // its round runs, and nothing ends it yet
};

class World {
 public:
  explicit World(const Scenario& scenario)
      : scenario_(scenario), random_(scenario.seed * 2654435761u + 17), later_random_(scenario.seed + 4711) {
    build();
  }
  Result run();

 private:
  // ---- chance ----
  Nanos between(Nanos low, Nanos high) {
    return low + static_cast<Nanos>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
  // For faults that were added later: the earlier seeds keep their stories.
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

  // ---- time ----
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
  void ask(int index);
  void answer(int index, const NodeQuestion& question);
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
  void stop_workers(int index, bool at_once);
  void end_agent(int index, const node_action::Finish& action, bool by_itself);
  static bool is_missing(const node_action::Finish& action);
  static bool ends_the_job(const Agent& agent, const node_action::Finish& action);
  void note_job_over(int index, const node_action::Finish& action);
  void stop_requested(int index, bool saves = false);
  // ---- launchers (simulated_host.cpp) ----
  class Host;
  struct Call {
    Event::Kind kind{};
    int agent = 0;
    std::uint32_t life = 0;
    std::function<void()> what{};
    bool waits = false;  // until the end of a freeze
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
  std::map<RoundId, std::int64_t> saved_at_;  // step
  bool somebody_left_ = false;                // permanently, with workers that cannot be killed
  void workers_gone(Agent& agent, int index);
  bool trains(const Agent& agent) const {
    if (agent.asleep_until > time_) return false;
    const bool stands_still = agent.frozen_until + kGoesOnWithin > time_;
    return agent.training && !(stands_still && local(agent, time_ - agent.guardian_late) >= agent.until_local);
  }

  void fault();
  void kill(int victim, bool silent);
  void reset(int link_index);
  void lose_memory(int index);
  void entrust_farewell(Agent& agent, int index, bool silent);
  void say_farewell(const Event& event);
  // ---- goodput (simulated_goodput.cpp) ----
  bool is_calm() const;
  bool some_round_trains() const;
  void account(Nanos until);
  Nanos idle_ = 0;  // time in which a calm job has not trained
  // ---- the arbiter (simulated_arbiter.cpp) ----
  struct Question {
    Ballot ballot{};
    NodeId self{};
    BallotAnswer answer = BallotAnswer::kNone;
    Nanos until = 0;  // end of the wait of the node that asked
  };
  void build_arbiter();
  void tell_of_arbiter(int index, NodeSettings& settings) const;
  void ask_arbiter(int index, const node_action::AskArbiter& action);
  void arbiter_hears(const Event& event);
  void arbiter_answers(const Event& event);
  bool arbiter_is_cut_off(int index) const;
  std::mt19937_64 arbiter_random_;
  std::vector<Question> questions_;
  std::map<std::pair<NodeId, RoundId>, NodeId> arbiter_votes_;
  std::vector<std::vector<std::pair<Nanos, Nanos>>> arbiter_away_;  // for each agent: from, to
  std::vector<coordinator_action::Entrust> farewells_;
  std::mt19937_64 farewell_random_;
  bool memory_chance(int percent) { return memory_random_() % 100 < static_cast<std::uint64_t>(percent); }
  void recover();

  void note_release(int index, std::uint32_t life, const Release& release, int coordinator);
  void check_training(int index);
  void check_together(int index, const RoundId& id, int other, const RoundId& other_id);
  bool begun_by_who_forgot_alone(const RoundId& id) const;
  void check_failure_is_known(const Round& round);
  void check_coordinator(int index);
  void check_message(const FromCoordinator& message);
  void note_heard(int index, int sender, const FromMember& message);
  void note_lost(int index, int other);
  void note_away(int index, int other, std::uint32_t life);
  void note_back(int index, int other);
  void check_round_over(int index, const RoundId& id, const std::string& why);
  void signal(int index);
  void leave(int index, bool saves);
  void cut_off(Nanos length);
  void lose_one_amid_signals(int leader);
  void get_stuck(int index);
  void get_loose(int index);
  void sleep(int index, Nanos length);
  void block_loop(int index, Nanos length);
  Nanos goes_on_at(const Agent& agent);
  void wake(int index);
  void lose_coordinator();
  void note_full(const Round& round);
  void stall_disk(int index);
  void write(int index, const member_action::Remember& action);
  void finish_writing(Agent& agent);
  void write_is_done(int index);
  void write_was_heard(int index, bool ok);
  void note_said(int index, const node_action::ToDialler& said);
  void note_closed(int index, const node_action::CloseLink& close);
  void check_waiting(Agent& agent);
  bool led_by_who_may_not_know(const RoundId& id) const;
  bool begun_by_spares(const RoundId& id) const;
  void check_start_after_end(int index, const RoundId& id);
  void check_stopped(int index, const node_action::Finish& finish);
  void check_minority(int index, const node_action::Finish& finish);
  void check_end(int index, const node_action::Finish& finish);
  bool may_not_know_of_the_end(int index) const;
  void disturb(Agent& agent, Nanos until) { agent.disturbed_until = std::max(agent.disturbed_until, until); }
  void tell_where_all_are();
  void violate(const std::string& what) {
    if (result_.violation.empty()) {
      tell_where_all_are();
      result_.violation = what;
      tell("VIOLATION: " + what);
    }
  }
  void tell(const std::string& line) {
    if (!scenario_.tell) return;
    char stamp[32];
    std::snprintf(stamp, sizeof(stamp), "%10.4f s  ", static_cast<double>(time_) / 1e9);
    result_.story.push_back(stamp + line);
  }
  // Messages for elections and rounds.
  template <class Any>
  void tell_message(int from, int to, const Any& any) {
    if (!scenario_.tell) return;
    const std::string who = name(from) + " to " + name(to) + ": ";
    if constexpr (std::is_same_v<Any, FromMember>) {
      if (const auto* hello = std::get_if<Hello>(&any)) tell(who + "hello " + describe(hello->state));
      if (std::get_if<StopAsk>(&any)) tell(who + "asks to stop");
      if (const auto* vote = std::get_if<Vote>(&any)) {
        tell(who + (vote->given() ? "votes in term " : "no vote in term ") + std::to_string(vote->term));
      }
    } else {
      if (const auto* release = std::get_if<Release>(&any)) {
        tell(who + "release " + name(release->id) + " as " + std::to_string(release->group_rank) + " of " +
             std::to_string(release->nodes) + ", before " + describe(release->previous) + (release->start ? "" : ", no start") +
             ", restart " + std::to_string(release->budget.restart_count));
      }
      if (const auto* request = std::get_if<VoteRequest>(&any))
        tell(who + "vote for me in term " + std::to_string(request->term));
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
  std::map<std::pair<int, int>, Slow> slow_;  // from, to
  Result result_;
  std::uint64_t next_question_ = 1;
  std::int32_t come_as_others_ = 0;                     // starts that may have given a node another identity
  std::map<std::uint64_t, NodeId> asked_alone_;         // queries to one node
  std::set<std::pair<std::uint64_t, NodeId>> answers_;  // received answers: number of the query, and the node that answered

  std::int32_t min_nodes_ = 1;
  std::int32_t max_nodes_ = 1;
  std::int32_t max_restarts_ = 0;
  bool through_codec_ = false;
  bool leaving_happens_ = false;
  bool nodes_are_reclaimed_ = false;  // some of them, each by a signal
  bool finishing_happens_ = false;    // during faults
  bool all_are_signalled_ = false;    // within 20 ms, after the faults are over
  bool signals_came_ = false;
  bool lost_amid_signals_ = false;
  bool somebody_gets_stuck_ = false;
  bool in_containers_ = false;  // the first start finds no memory, and neither does a start after a loss
  Nanos coordinator_lost_ = 0;
  int alive_ = 0;  // number of processes
  bool memory_is_lost_ = false;
  bool farewell_was_said_ = false;
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
  bool was_told_over_ = false;  // a coordinator has informed a node
  int decided_by_ = 0;
  bool ended_by_itself_ = false;  // about the first node that ended
  std::map<RoundId, Round> rounds_;
  std::vector<Orphans> orphans_;
  // Key: a coordinator, another agent. Value: the time at which the connection between them was reset, and the life of the
  // other agent then. The link may be given up a moment later.
  std::map<std::pair<int, int>, std::pair<Nanos, std::uint32_t>> away_;
  std::vector<RoundId> released_;   // by the current event
  std::vector<int> started_;        // agents whose workers were started by the current event
  std::vector<std::string> ended_;  // reasons of rounds that ended in the current event
  bool somebody_was_asked_to_stop_ = false;
  std::map<std::uint64_t, std::pair<int, std::uint32_t>> leader_of_term_;
};

}  // namespace ddprun::rendezvous::simulation
