// Implementation of simulator.hpp. Order of the file: the world, events, the network, workers, faults, what must hold.
#include "tests/rendezvous/simulator.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "common/exit_code.hpp"
#include "rendezvous/codec.hpp"

namespace ddprun::rendezvous::simulation {
namespace {

using Nanos = std::int64_t;  // of true time, since the simulation began
constexpr Nanos kMs = 1'000'000;
constexpr Nanos kSecond = 1000 * kMs;
constexpr Nanos kNever = INT64_MAX;
constexpr Nanos kRecovery = 120 * kSecond;  // from the end of the faults to the end of the job
constexpr std::size_t kLargestRelease = 2048;
constexpr std::int64_t kMostEvents = 400000;

struct Opened {};
struct Fin {};
using Packet = std::variant<Opened, Fin, FromMember, FromCoordinator>;

// One direction of a connection: in order, as TCP's.
struct Pipe {
  std::vector<Packet> packets;
  std::size_t head = 0;
  bool pumping = false;
  Nanos last = 0;
};

struct Link {
  int end[2] = {0, 0};  // agents: who dialled, who listens
  std::uint32_t life[2] = {0, 0};
  LinkId id[2] = {0, 0};
  bool open[2] = {true, true};  // as that end sees it
  Pipe pipe[2];                 // [0]: from the dialler
};

struct Agent {
  NodeId id{};
  std::uint64_t incarnation = 1;
  std::unique_ptr<Node> node;
  std::optional<Record> record;
  double rate = 1;
  Nanos base = 0;
  Nanos skew = 0;
  Nanos extra_latency = 0;
  Nanos frozen_until = 0;
  bool powered = true;
  bool asked_to_stop = false;
  bool left = false;
  bool newcomer = false;  // starts anew where the job is known to be: it leads nothing
  int local_world_size = 1;
  std::uint32_t life = 0;  // counts starts and ends of the process
  Nanos timer_at = kNever;
  std::map<LinkId, int> links;
  LinkId next_accepted = 1;
  std::uint64_t term_seen = 0;
  bool coordinates = false;
  // its workers
  bool training = false;
  RoundId round{};
  Nanos until_local = 0;
  std::uint32_t job = 0;  // counts starts of workers
  bool ending = false;
  std::int64_t steps = 0;
};

struct Round {
  Release first;
  int coordinator = -1;
  std::uint32_t leadership = 0;
  std::map<std::int32_t, int> members;  // group rank -> agent
  std::map<std::int32_t, std::uint32_t> lives;
  std::map<std::int32_t, std::int32_t> offsets;
  std::set<int> training;
  bool full = false;  // all trained at once
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
    kRecover
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

class World {
 public:
  explicit World(const Scenario& scenario) : scenario_(scenario), random_(scenario.seed * 2654435761u + 17) { build(); }
  Result run();

 private:
  // ---- chance ----
  Nanos between(Nanos low, Nanos high) {
    return low + static_cast<Nanos>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(0, 99) < percent; }
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
  void carry_out(int index, NodeAction& action);
  void set_timer(int index);

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
  void stop_workers(int index, bool at_once);
  void workers_gone(Agent& agent, int index);
  bool trains(const Agent& agent) const {
    return agent.training && !(agent.frozen_until > time_ && local(agent, time_) >= agent.until_local);
  }

  void fault();
  void kill(int victim, bool silent);
  void recover();

  void note_release(int index, std::uint32_t life, const Release& release, int coordinator);
  void check_training(int index);
  void check_coordinator(int index);
  void check_message(const FromCoordinator& message);
  void violate(const std::string& what) {
    if (result_.violation.empty()) {
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
  // What elections and rounds rest on.
  template <class Any>
  void tell_message(int from, int to, const Any& any) {
    if (!scenario_.tell) return;
    const std::string who = name(from) + " to " + name(to) + ": ";
    if constexpr (std::is_same_v<Any, FromMember>) {
      if (const auto* hello = std::get_if<Hello>(&any)) tell(who + "hello " + describe(hello->standing));
      if (const auto* vote = std::get_if<Vote>(&any)) {
        tell(who + (vote->given() ? "votes in term " : "no vote in term ") + std::to_string(vote->term));
      }
    } else {
      if (const auto* release = std::get_if<Release>(&any)) {
        tell(who + "release " + name(release->id) + " as " + std::to_string(release->group_rank) + " of " +
             std::to_string(release->nodes) + ", before " + describe(release->previous) + (release->start ? "" : ", no start"));
      }
      if (const auto* request = std::get_if<VoteRequest>(&any))
        tell(who + "vote for me in term " + std::to_string(request->term));
    }
  }
  static std::string describe(const Config& config) {
    return name(config.id) + (config.born == config.id.term ? "" : " of term " + std::to_string(config.born)) + " as " +
           std::to_string(config.rank) + " of " + std::to_string(config.nodes);
  }
  static std::string describe(const Standing& standing) {
    return "promised " + std::to_string(standing.promised_term) + ", knows " + describe(standing.current) + ", before " +
           describe(standing.previous);
  }
  static std::string name(const RoundId& id) { return std::to_string(id.term) + "/" + std::to_string(id.round); }
  static std::string name(int agent) { return "agent " + std::to_string(agent); }

  Scenario scenario_;
  std::mt19937_64 random_;
  Nanos time_ = 0;
  std::uint64_t next_order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Agent> agents_;
  std::vector<Link> links_;
  std::vector<Nanos> blocked_;
  std::map<std::pair<int, int>, Slow> slow_;  // from, to
  Result result_;

  std::int32_t min_nodes_ = 1;
  std::int32_t max_nodes_ = 1;
  std::int32_t max_restarts_ = 0;
  bool through_codec_ = false;
  bool leaving_happens_ = false;
  Nanos jitter_ = kMs;
  Nanos faults_end_ = 0;
  bool recovering_ = false;
  bool job_over_ = false;
  Nanos job_over_at_ = 0;
  std::map<RoundId, Round> rounds_;
  std::vector<RoundId> released_;  // by the event that is being handled
  std::vector<int> started_;       // their workers, by the event that is being handled
  std::map<std::uint64_t, std::pair<int, std::uint32_t>> leader_of_term_;
};

// ---- the world ----

void World::build() {
  const int count = scenario_.agents > 0 ? scenario_.agents
                    : chance(10)         ? static_cast<int>(between(8, 16))
                                         : static_cast<int>(between(1, 7));
  agents_.resize(static_cast<std::size_t>(count));
  blocked_.assign(agents_.size() * (agents_.size() <= 64 ? agents_.size() : 0), 0);
  max_nodes_ = chance(70) ? count : static_cast<std::int32_t>(between(1, count));
  min_nodes_ = chance(40) ? max_nodes_ : static_cast<std::int32_t>(between(1, max_nodes_));
  max_restarts_ = static_cast<std::int32_t>(between(0, 4));
  through_codec_ = scenario_.seed % 8 == 0;
  leaving_happens_ = scenario_.faults && chance(15);
  jitter_ = chance(70) ? 2 * kMs : between(5 * kMs, 400 * kMs);
  faults_end_ = scenario_.faults ? between(8 * kSecond, 40 * kSecond) : 0;
  for (int i = 0; i < count; ++i) {
    Agent& agent = agents_[static_cast<std::size_t>(i)];
    for (std::uint8_t& byte : agent.id) byte = static_cast<std::uint8_t>(random_());
    agent.rate = chance(50)   ? 1.0
                 : chance(50) ? 0.9
                 : chance(50) ? 1.1
                              : 0.9 + 0.2 * static_cast<double>(between(0, 1000)) / 1000;
    agent.base = between(kSecond, 100000 * kSecond);
    agent.skew = between(-5 * kSecond, 5 * kSecond);
    if (scenario_.faults && chance(10)) agent.extra_latency = between(20 * kMs, 500 * kMs);
    agent.local_world_size = static_cast<int>(between(1, 8));
    schedule(chance(80) ? between(0, 200 * kMs) : between(0, 10 * kSecond), Event::Kind::kStart, i);
  }
  tell(std::to_string(count) + " agents, " + std::to_string(min_nodes_) + " to " + std::to_string(max_nodes_) +
       " nodes, at most " + std::to_string(max_restarts_) + " restarts");
  if (scenario_.faults) {
    Nanos at = between(100 * kMs, 4 * kSecond);
    while (at < faults_end_) {
      schedule(at, Event::Kind::kFault, 0);
      at += chance(50) ? between(kMs, 2 * kSecond) : between(kSecond, 9 * kSecond);
    }
  }
  schedule(faults_end_, Event::Kind::kRecover, 0);
}

NodeSettings World::settings_for(int index) const {
  const Agent& agent = agents_[static_cast<std::size_t>(index)];
  NodeSettings settings;
  settings.member.id = agent.id;
  settings.member.incarnation = agent.incarnation;
  settings.member.hostname = "host" + std::to_string(index);
  settings.member.listens = {std::to_string(index), 1};
  settings.member.local_world_size = agent.local_world_size;
  settings.member.master_port = static_cast<std::uint16_t>(1000 + index);
  settings.member.join_timeout = milliseconds(60000);
  settings.member.rules = scenario_.rules;
  for (int i = 0; i < (agent.newcomer ? std::ssize(agents_) : 1); ++i) {
    if (i != index) settings.member.endpoints.push_back({std::to_string(i), 1});
  }
  settings.leads_first = index == 0 && !agent.newcomer;
  settings.coordinator.min_nodes = min_nodes_;
  settings.coordinator.max_nodes = max_nodes_;
  settings.coordinator.max_restarts = max_restarts_;
  settings.coordinator.join_timeout = milliseconds(120000);
  settings.coordinator.rules = scenario_.rules;
  const std::int32_t most = max_restarts_;
  settings.coordinator.judge = [most](const FailureReport&, const Budget& before) {
    Verdict verdict;
    verdict.restart = before.used < most;
    verdict.exit_code = 7;
    verdict.after = before;
    ++verdict.after.used;
    return verdict;
  };
  return settings;
}

Result World::run() {
  while (!events_.empty() && result_.violation.empty()) {
    const Event event = events_.top();
    events_.pop();
    time_ = event.time;
    const bool anybody = std::any_of(agents_.begin(), agents_.end(), [](const Agent& agent) { return agent.node != nullptr; });
    if (job_over_ && !anybody) break;
    // Who was cut off when the job ended waits for it a while longer.
    if (time_ > faults_end_ + (job_over_ ? 2 : 1) * kRecovery) {
      if (leaving_happens_) break;  // those who left for good may have been needed for a majority
      for (std::size_t i = 0; i < agents_.size(); ++i) {
        if (!agents_[i].node) continue;
        const Standing& standing = agents_[i].node->member().standing();
        const Coordinator* coordinator = agents_[i].node->coordinator();
        tell(name(static_cast<int>(i)) + " " + describe(standing) + (agents_[i].training ? ", trains" : "") +
             (agents_[i].node->member().looking() ? ", looks" : "") +
             (coordinator != nullptr ? ", leads and waits for " + coordinator->waits_for() : std::string()));
      }
      result_.stuck = "the job did not end within " + std::to_string(kRecovery / kSecond) + " s after the last fault";
      tell("STUCK: " + result_.stuck);
      break;
    }
    ++result_.events;
    if (result_.events > kMostEvents) violate("too much happens: a machine does not come to rest");
    handle(event);
  }
  result_.rounds = std::ssize(rounds_);
  return std::move(result_);
}

void World::handle(const Event& event) {
  switch (event.kind) {
    case Event::Kind::kPump:
      return pump(event.a, static_cast<int>(event.b));
    case Event::Kind::kConnect:
      return connect(event.a);
    case Event::Kind::kFault:
      return fault();
    case Event::Kind::kRecover:
      return recover();
    case Event::Kind::kPowerLoss:
      if (event.life == agents_[static_cast<std::size_t>(event.a)].life && !recovering_) kill(event.a, /*silent=*/true);
      return;
    case Event::Kind::kStart:
      if (!agents_[static_cast<std::size_t>(event.a)].node && event.life == agents_[static_cast<std::size_t>(event.a)].life) {
        start(event.a);
      }
      return;
    default:
      break;
  }
  Agent& agent = agents_[static_cast<std::size_t>(event.a)];
  if (!agent.node || event.life != agent.life) return;
  if (agent.frozen_until > time_) {
    schedule(agent.frozen_until, event.kind, event.a, event.b, event.life, event.job);
    return;
  }
  switch (event.kind) {
    case Event::Kind::kTimer:
      if (event.time < agent.timer_at) return;
      agent.timer_at = kNever;
      return deliver(event.a, node_event::Tick{});
    case Event::Kind::kTimeout:  // of a connection that could not be made
      return deliver(event.a, node_event::LinkClosed{kDialled | static_cast<LinkId>(event.b)});
    case Event::Kind::kWorkersFail: {
      if (event.job != agent.job || !agent.training || agent.ending) return;
      tell(name(event.a) + ": a worker fails");
      FailureReport report;
      report.exit_code = 7;
      report.time_ns = time_ + agent.skew;
      report.message = "exit code 7";
      agent.ending = true;
      schedule(time_ + between(kMs, 200 * kMs), Event::Kind::kWorkersEnd, event.a, 0, agent.life, agent.job);
      return deliver(event.a, node_event::Local{member_event::WorkersFailed{report}});
    }
    case Event::Kind::kWorkersEnd:
      if (event.job != agent.job || (!agent.training && event.b == 0)) return;
      workers_gone(agent, event.a);
      return deliver(event.a, node_event::Local{member_event::WorkersEnded{.saved = true, .master_port = 2000}});
    case Event::Kind::kWorkersDone:
      if (event.job != agent.job || !agent.training || agent.ending) return;
      workers_gone(agent, event.a);
      tell(name(event.a) + ": its workers are done");
      return deliver(event.a, node_event::Local{member_event::WorkersDone{.master_port = 2000}});
    default:
      return;
  }
}

void World::start(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (job_over_) return;
  ++agent.life;
  ++agent.incarnation;
  agent.powered = true;
  agent.asked_to_stop = false;
  if (agent.left) {  // who said goodbye comes back as somebody else
    agent.left = false;
    agent.newcomer = true;
    agent.record.reset();
    for (std::uint8_t& byte : agent.id) byte = static_cast<std::uint8_t>(random_());
  }
  agent.timer_at = kNever;
  agent.coordinates = false;
  agent.term_seen = 0;
  tell(name(index) + " starts");
  agent.node = std::make_unique<Node>(settings_for(index), agent.record, now_of(agent));
  deliver(index, node_event::Begin{});
}

// silent: the power is gone, nothing says goodbye to the connections.
void World::end_process(int index, bool silent) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node) return;
  workers_gone(agent, index);
  agent.node.reset();
  agent.frozen_until = 0;
  agent.powered = !silent;
  ++agent.life;
  for (const auto& [id, link_index] : agent.links) {
    Link& link = links_[static_cast<std::size_t>(link_index)];
    const int end = link.end[0] == index ? 0 : 1;
    if (link.open[end] && !silent) send(link_index, end, Fin{});
    link.open[end] = false;
  }
  agent.links.clear();
}

void World::deliver(int index, const NodeEvent& event) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  std::vector<NodeAction> actions = agent.node->on(event, now_of(agent));
  for (NodeAction& action : actions) {
    if (!agent.node) break;
    carry_out(index, action);
  }
  for (const int started : std::exchange(started_, {})) check_training(started);
  for (const RoundId& id : std::exchange(released_, {})) {  // all but the coordinator's own node, which may start later
    if (std::ssize(rounds_[id].members) + 1 < rounds_[id].first.nodes)
      violate("round " + name(id) + " has nodes that nobody is");
  }
  if (!agent.node) return;
  check_coordinator(index);
  set_timer(index);
}

void World::set_timer(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const auto deadline = agent.node->next_deadline();
  if (!deadline) return;
  const Nanos at = std::max(time_ + 1, true_time(agent, stamp_of(*deadline)));
  if (agent.timer_at <= at && agent.timer_at > time_) return;
  agent.timer_at = at;
  schedule(at, Event::Kind::kTimer, index, 0, agent.life);
}

void World::carry_out(int index, NodeAction& any) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  std::visit(
      [&](auto& action) {
        using Action = std::decay_t<decltype(action)>;
        if constexpr (std::is_same_v<Action, node_action::ToDialler>) {
          check_message(action.message);
          if (const auto* release = std::get_if<Release>(&action.message);
              release && release->start && release->group_rank >= 0) {
            const auto link = agent.links.find(action.link);
            if (link != agent.links.end()) {
              const Link& to = links_[static_cast<std::size_t>(link->second)];
              note_release(to.end[0], to.life[0], *release, index);
            }
          }
          const auto link = agent.links.find(action.link);
          if (link == agent.links.end()) return;
          tell_message(index, links_[static_cast<std::size_t>(link->second)].end[0], action.message);
          send(link->second, 1, std::move(action.message));
        } else if constexpr (std::is_same_v<Action, node_action::ToListener>) {
          const auto link = agent.links.find(action.link);
          if (link == agent.links.end()) return;
          tell_message(index, links_[static_cast<std::size_t>(link->second)].end[1], action.message);
          send(link->second, 0, std::move(action.message));
        } else if constexpr (std::is_same_v<Action, node_action::CloseLink>) {
          const auto found = agent.links.find(action.link);
          if (found == agent.links.end()) return;
          Link& link = links_[static_cast<std::size_t>(found->second)];
          const int end = (action.link & kDialled) != 0 ? 0 : 1;
          send(found->second, end, Fin{});
          link.open[end] = false;
          agent.links.erase(found);
        } else if constexpr (std::is_same_v<Action, node_action::Finish>) {
          tell(name(index) + " ends with " + std::to_string(action.exit_code) + ": " + action.why);
          const bool missing = action.exit_code == static_cast<int>(ExitCode::kPeersMissing) ||
                               action.exit_code == static_cast<int>(ExitCode::kMinority) ||
                               action.exit_code == static_cast<int>(ExitCode::kUsage);
          const bool alone = agent.asked_to_stop && !agent.coordinates && action.exit_code != 0 && action.exit_code != 7;
          if (agent.training) violate(name(index) + " ended before its workers");
          if (!missing && !alone && !job_over_) {
            job_over_ = true;
            job_over_at_ = time_;
            result_.exit_code = action.exit_code;
          }
          agent.left = agent.asked_to_stop;
          end_process(index, /*silent=*/false);
          if (missing && (recovering_ || chance(70))) {
            schedule(time_ + between(100 * kMs, 5 * kSecond), Event::Kind::kStart, index, 0, agent.life);
          }
        } else if constexpr (std::is_same_v<Action, member_action::Dial>) {
          dial(index, action.link, action.address);
        } else if constexpr (std::is_same_v<Action, member_action::Remember>) {
          agent.record = action.record;
        } else if constexpr (std::is_same_v<Action, member_action::StartWorkers>) {
          start_workers(index, action);
        } else if constexpr (std::is_same_v<Action, member_action::ExtendGrant>) {
          agent.until_local = stamp_of(action.until);
        } else if constexpr (std::is_same_v<Action, member_action::StopWorkers>) {
          tell(name(index) + " stops its workers" + (action.at_once ? " at once: " : ": ") + action.why);
          stop_workers(index, action.at_once);
        } else if constexpr (std::is_same_v<Action, member_action::StopAndSave>) {
          schedule(time_ + between(300 * kMs, kSecond), Event::Kind::kWorkersEnd, index, 0, agent.life, agent.job);
          agent.ending = true;
        } else if constexpr (std::is_same_v<Action, member_action::Say>) {
          if (scenario_.tell) {
            tell(name(index) + " [" + std::to_string(static_cast<int>(action.notice.kind)) + "] " + action.notice.text + " " +
                 std::to_string(action.notice.count) + "/" + std::to_string(action.notice.of));
          }
        }
      },
      any);
}

// ---- the network ----

Nanos World::latency(int from, int to) {
  const auto slow = slow_.find({from, to});
  const Nanos extra = slow != slow_.end() && slow->second.until > time_ ? slow->second.extra : 0;
  return extra + between(100'000, jitter_) + agents_[static_cast<std::size_t>(from)].extra_latency +
         agents_[static_cast<std::size_t>(to)].extra_latency;
}

void World::dial(int from, LinkId id, const Address& address) {
  const int to = std::stoi(address.host);
  Link link;
  link.end[0] = from;
  link.end[1] = to;
  link.id[0] = id;
  link.life[0] = agents_[static_cast<std::size_t>(from)].life;
  links_.push_back(std::move(link));
  const int index = static_cast<int>(links_.size()) - 1;
  agents_[static_cast<std::size_t>(from)].links.emplace(id, index);
  schedule(time_ + latency(from, to), Event::Kind::kConnect, index);
}

void World::connect(int link_index) {
  Link& link = links_[static_cast<std::size_t>(link_index)];
  Agent& from = agents_[static_cast<std::size_t>(link.end[0])];
  Agent& to = agents_[static_cast<std::size_t>(link.end[1])];
  if (!from.node || from.life != link.life[0] || !link.open[0]) return;
  const bool cut =
      !blocked_.empty() && (blocked(link.end[0], link.end[1]) > time_ || blocked(link.end[1], link.end[0]) > time_);
  if (cut || !to.node) {
    const Nanos wait = cut || !to.powered ? 2 * kSecond : latency(link.end[1], link.end[0]);
    from.links.erase(link.id[0]);
    link.open[0] = link.open[1] = false;
    schedule(time_ + wait, Event::Kind::kTimeout, link.end[0], static_cast<std::int64_t>(link.id[0] & ~kDialled), from.life);
    return;
  }
  link.life[1] = to.life;
  link.id[1] = to.next_accepted++;
  to.links.emplace(link.id[1], link_index);
  send(link_index, 0, Opened{});
  send(link_index, 1, Opened{});
}

void World::send(int link_index, int end, Packet packet) {
  Link& link = links_[static_cast<std::size_t>(link_index)];
  if (!link.open[end]) return;
  ++result_.messages;
  Pipe& pipe = link.pipe[end];
  pipe.packets.push_back(std::move(packet));
  pump_later(link_index, end, std::max(pipe.last, time_ + latency(link.end[end], link.end[1 - end])));
}

void World::pump_later(int link_index, int direction, Nanos at) {
  Pipe& pipe = links_[static_cast<std::size_t>(link_index)].pipe[direction];
  pipe.last = std::max(pipe.last, at);
  if (std::exchange(pipe.pumping, true)) return;
  schedule(at, Event::Kind::kPump, link_index, direction);
}

void World::pump(int link_index, int direction) {
  links_[static_cast<std::size_t>(link_index)].pipe[direction].pumping = false;
  const int from = links_[static_cast<std::size_t>(link_index)].end[direction];
  const int to = links_[static_cast<std::size_t>(link_index)].end[1 - direction];
  if (!blocked_.empty() && blocked(from, to) > time_) {
    return pump_later(link_index, direction, blocked(from, to) + between(0, 300 * kMs));
  }
  if (agents_[static_cast<std::size_t>(to)].frozen_until > time_) {
    return pump_later(link_index, direction, agents_[static_cast<std::size_t>(to)].frozen_until);
  }
  Pipe& pipe = links_[static_cast<std::size_t>(link_index)].pipe[direction];
  if (pipe.head == pipe.packets.size()) return;
  Packet packet = std::move(pipe.packets[pipe.head++]);
  if (pipe.head == pipe.packets.size()) {
    pipe.packets.clear();
    pipe.head = 0;
  } else {
    pump_later(link_index, direction, chance(80) ? time_ + 1000 : time_ + between(0, jitter_));
  }
  arrive(link_index, direction, std::move(packet));
}

void World::arrive(int link_index, int direction, Packet packet) {
  Link& link = links_[static_cast<std::size_t>(link_index)];
  const int end = 1 - direction;
  const int index = link.end[end];
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (!agent.node || agent.life != link.life[end]) {
    // A host that is up answers for a process that is not: reset. One without power says nothing.
    if (agent.powered && link.open[direction] && !std::holds_alternative<Fin>(packet)) {
      link.open[end] = true;
      send(link_index, end, Fin{});
      link.open[end] = false;
    }
    return;
  }
  if (!link.open[end]) return;
  const LinkId id = link.id[end];
  if (std::holds_alternative<Opened>(packet)) {
    deliver(index, node_event::LinkOpened{id, std::to_string(index)});
  } else if (std::holds_alternative<Fin>(packet)) {
    link.open[end] = false;
    agent.links.erase(id);
    deliver(index, node_event::LinkClosed{id});
  } else if (auto* from_member = std::get_if<FromMember>(&packet)) {
    if (through_codec_) *from_member = decode_from_member(encode(*from_member));
    deliver(index, node_event::FromDialler{id, std::move(*from_member)});
  } else {
    auto& message = std::get<FromCoordinator>(packet);
    if (through_codec_) message = decode_from_coordinator(encode(message));
    deliver(index, node_event::FromListener{id, std::move(message)});
  }
}

// ---- workers ----

void World::start_workers(int index, const member_action::StartWorkers& action) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  tell(name(index) + " starts its workers in round " + name(action.release.id) + " as node " +
       std::to_string(action.release.group_rank) + " of " + std::to_string(action.release.nodes) + ", restart " +
       std::to_string(action.release.budget.restart_count));
  if (agent.training) violate(name(index) + " starts workers while it has some");
  if (agent.node->coordinator() != nullptr) note_release(index, agent.life, action.release, index);
  agent.training = true;
  agent.ending = false;
  agent.round = action.release.id;
  agent.until_local = stamp_of(action.until);
  ++agent.job;
  Round& round = rounds_[agent.round];
  round.training.insert(index);
  if (std::ssize(round.training) == round.first.nodes) round.full = true;
  started_.push_back(index);
  if (scenario_.faults && !recovering_ && chance(10)) {
    schedule(time_ + between(0, 5 * kSecond), Event::Kind::kWorkersFail, index, 0, agent.life, agent.job);
  }
  if (recovering_) schedule(time_ + 3 * kSecond, Event::Kind::kWorkersDone, index, 0, agent.life, agent.job);
}

void World::stop_workers(int index, bool at_once) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  if (at_once) {
    workers_gone(agent, index);
    schedule(time_ + kMs, Event::Kind::kWorkersEnd, index, 1, agent.life, agent.job);
    return;
  }
  if (std::exchange(agent.ending, true)) return;
  const Nanos takes = chance(85) ? between(kMs, 300 * kMs) : between(kMs, 9 * kSecond);
  schedule(time_ + takes, Event::Kind::kWorkersEnd, index, 0, agent.life, agent.job);
}

void World::workers_gone(Agent& agent, int index) {
  if (!agent.training) return;
  agent.training = false;
  rounds_[agent.round].training.erase(index);
}

// ---- faults ----

void World::fault() {
  if (job_over_) return;
  const int kind = static_cast<int>(between(0, 99));
  const bool late_answers = kind >= 70 && kind < 76;
  const int victim = late_answers || chance(40) ? coordinator_now() : some_agent();
  Agent& agent = agents_[static_cast<std::size_t>(victim)];
  const auto block = [&](int from, int to, Nanos until) {
    if (from != to && !blocked_.empty()) blocked(from, to) = std::max(blocked(from, to), until);
  };
  if (kind < 25) {
    if (!agent.node) return;
    const bool silent = chance(50);
    kill(victim, silent);
  } else if (kind < 40) {
    if (!agent.node) return;
    agent.frozen_until = std::max(agent.frozen_until, time_) +
                         (chance(50) ? between(10 * kMs, 2 * kSecond) : between(2 * kSecond, 14 * kSecond));
    tell(name(victim) + " is frozen for " + std::to_string((agent.frozen_until - time_) / kMs) + " ms");
  } else if (kind < 60) {  // two sides, or one way
    const Nanos until = time_ + (chance(40) ? between(100 * kMs, 4 * kSecond) : between(4 * kSecond, 20 * kSecond));
    const bool both_ways = chance(60);
    std::string side;
    std::vector<bool> in_side(agents_.size());
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      in_side[i] = chance(50);
      if (in_side[i]) side += " " + std::to_string(i);
    }
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      for (std::size_t j = 0; j < agents_.size(); ++j) {
        if (in_side[i] == in_side[j]) continue;
        if (in_side[i] || both_ways) block(static_cast<int>(i), static_cast<int>(j), until);
      }
    }
    tell("partition" + std::string(both_ways ? "" : ", one way, from") + ":" + side + " for " +
         std::to_string((until - time_) / kMs) + " ms");
  } else if (kind < 70) {  // one node's cable, or what it sends, or what it gets
    const Nanos until = time_ + between(100 * kMs, 16 * kSecond);
    const int way = static_cast<int>(between(0, 2));
    for (int i = 0; i < std::ssize(agents_); ++i) {
      if (way != 1) block(victim, i, until);
      if (way != 2) block(i, victim, until);
    }
    tell(name(victim) +
         (way == 0   ? " is cut off for "
          : way == 1 ? " hears nothing for "
                     : " is not heard for ") +
         std::to_string((until - time_) / kMs) + " ms");
  } else if (late_answers) {  // answers come late, and then it is gone
    const int other = some_agent();
    if (!agent.node || other == victim) return;
    const Nanos until = time_ + between(2 * kSecond, 9 * kSecond);
    slow_[{victim, other}] = {.until = until, .extra = between(2 * kSecond, 4 * kSecond)};
    tell("what " + name(victim) + " says to " + name(other) + " is late by " +
         std::to_string(slow_[{victim, other}].extra / kMs) + " ms for " + std::to_string((until - time_) / kMs) + " ms");
    if (chance(80)) schedule(until, Event::Kind::kPowerLoss, victim, 0, agent.life);
  } else if (kind < 84) {  // connections are reset, and each side sees it for itself
    tell("connections of " + name(victim) + " are reset");
    const auto links = agent.links;
    for (const auto& [id, link_index] : links) {
      if (chance(50)) continue;
      send(link_index, 0, Fin{});
      send(link_index, 1, Fin{});
    }
  } else if (kind < 96 || !leaving_happens_) {
    if (agent.node && agent.training) {
      schedule(time_ + between(0, kSecond), Event::Kind::kWorkersFail, victim, 0, agent.life, agent.job);
    }
  } else if (agent.node && agent.frozen_until <= time_) {
    tell(name(victim) + " gets a signal");
    agent.asked_to_stop = true;
    deliver(victim, node_event::Local{member_event::StopRequested{15}});
  }
}

void World::kill(int victim, bool silent) {
  tell(name(victim) + (silent ? ": its power is gone" : " is killed"));
  end_process(victim, silent);
  if (!chance(85)) return;
  const Nanos back = chance(50) ? between(10 * kMs, 2 * kSecond) : between(kSecond, 15 * kSecond);
  schedule(time_ + back, Event::Kind::kStart, victim, 0, agents_[static_cast<std::size_t>(victim)].life);
}

// No more faults: networks heal, whoever is away comes back, and workers finish by and by.
void World::recover() {
  tell("all faults are over");
  recovering_ = true;
  std::fill(blocked_.begin(), blocked_.end(), 0);
  slow_.clear();
  // What remains slow has round trips of at most a fifth of the lease: docs/rendezvous.md promises no more.
  jitter_ = std::min(jitter_, 100 * kMs);
  for (int i = 0; i < std::ssize(agents_); ++i) {
    Agent& agent = agents_[static_cast<std::size_t>(i)];
    agent.frozen_until = std::min(agent.frozen_until, time_);
    agent.extra_latency = std::min(agent.extra_latency, 200 * kMs);
    if (!agent.node) {
      schedule(time_ + between(0, 2 * kSecond), Event::Kind::kStart, i, 0, agent.life);
    } else if (agent.training) {
      schedule(time_ + 3 * kSecond, Event::Kind::kWorkersDone, i, 0, agent.life, agent.job);
    }
    // What waited for the end of a block or a freeze.
    agent.timer_at = kNever;
    if (agent.node) set_timer(i);
  }
}

// ---- what must hold ----

// One coordinator a term.
void World::check_coordinator(int index) {
  Agent& agent = agents_[static_cast<std::size_t>(index)];
  const Coordinator* coordinator = agent.node->coordinator();
  if (coordinator == nullptr) {
    agent.coordinates = false;
    return;
  }
  if (agent.coordinates && agent.term_seen == coordinator->term()) return;
  if (!agent.coordinates) ++result_.successions;
  agent.coordinates = true;
  agent.term_seen = coordinator->term();
  tell(name(index) + " coordinates term " + std::to_string(agent.term_seen));
  const auto [known, is_new] = leader_of_term_.try_emplace(agent.term_seen, index, agent.life);
  if (!is_new && known->second != std::pair(index, agent.life)) {
    violate("term " + std::to_string(agent.term_seen) + " has two coordinators: agents " + std::to_string(known->second.first) +
            " and " + std::to_string(index));
  }
}

// Every node hears the same of a round, each rank is given once, and they are contiguous.
void World::note_release(int index, std::uint32_t life, const Release& release, int coordinator) {
  Round& round = rounds_[release.id];
  if (round.coordinator < 0) {
    released_.push_back(release.id);
    round.coordinator = coordinator;
    round.leadership = agents_[static_cast<std::size_t>(coordinator)].life;
    round.first = release;
    if (release.budget.restart_count > max_restarts_) {
      violate("round " + name(release.id) + " is restart " + std::to_string(release.budget.restart_count) + " of at most " +
              std::to_string(max_restarts_));
    }
    for (const auto& [id, other] : rounds_) {
      if (other.full && id < release.id && other.first.budget.restart_count > release.budget.restart_count) {
        violate("round " + name(release.id) + " forgets restarts of round " + name(id));
      }
    }
  }
  const Release& first = round.first;
  if (first.nodes != release.nodes || first.world_size != release.world_size || first.master != release.master ||
      first.budget.restart_count != release.budget.restart_count) {
    violate("nodes were told different things of round " + name(release.id));
  }
  if (release.group_rank < 0 || release.group_rank >= release.nodes) {
    violate("round " + name(release.id) + " has group rank " + std::to_string(release.group_rank) + " of " +
            std::to_string(release.nodes));
  }
  const auto [member, is_new] = round.members.try_emplace(release.group_rank, index);
  if (!is_new && member->second != index) violate("round " + name(release.id) + " gives a rank twice");
  round.offsets[release.group_rank] = release.rank_offset;
  round.lives[release.group_rank] = life;
  if (std::ssize(round.members) != release.nodes || !is_new) return;
  std::int32_t next = 0;
  std::set<std::pair<int, std::uint32_t>> seen;  // a process that is gone and its successor may both be in it for a moment
  for (const auto& [rank, agent] : round.members) {
    if (!seen.emplace(agent, round.lives[rank]).second) violate(name(agent) + " is twice in round " + name(release.id));
    if (round.offsets[rank] != next) violate("ranks of round " + name(release.id) + " are not contiguous");
    next += agents_[static_cast<std::size_t>(agent)].local_world_size;
  }
  if (next != release.world_size) violate("round " + name(release.id) + " has ranks that nobody has");
}

// Never two rounds at once: not of two coordinators, not on disjoint memberships, and nobody of the newer one in the older.
void World::check_training(int index) {
  const RoundId own_id = agents_[static_cast<std::size_t>(index)].round;
  const Round& own = rounds_[own_id];
  for (auto& [id, other] : rounds_) {
    if (id == own_id || other.training.empty()) continue;
    for (const int b : other.training) {
      if (!trains(agents_[static_cast<std::size_t>(b)])) continue;
      const std::string both = name(index) + " in round " + name(own_id) + ", " + name(b) + " in round " + name(id);
      if (other.coordinator != own.coordinator || other.leadership != own.leadership) {
        violate("rounds of two coordinators train at once: " + both);
        continue;
      }
      const Round& newer = own_id > id ? own : other;
      const int in_older = own_id > id ? b : index;
      for (const auto& [rank, agent] : newer.members) {
        if (agent == in_older) violate("a node trains in an older round than the one it is in: " + both);
      }
      const bool shared = std::any_of(own.members.begin(), own.members.end(), [&](const auto& mine) {
        return std::any_of(other.members.begin(), other.members.end(),
                           [&](const auto& theirs) { return theirs.second == mine.second; });
      });
      const bool all_known = std::ssize(own.members) == own.first.nodes && std::ssize(other.members) == other.first.nodes;
      if (!shared && all_known) violate("disjoint rounds train at once: " + both);
    }
  }
}

// Nothing grows with the number of nodes.
void World::check_message(const FromCoordinator& message) {
  if (!std::holds_alternative<Release>(message)) return;
  try {
    const std::size_t size = encode(message).size();
    result_.largest_message = std::max(result_.largest_message, size);
    if (size > kLargestRelease) violate("a release has " + std::to_string(size) + " bytes");
  } catch (const ProtocolError& error) {
    violate(std::string("a release that cannot be sent: ") + error.what());
  }
}

}  // namespace

Result simulate(const Scenario& scenario) {
  return World(scenario).run();
}

}  // namespace ddprun::rendezvous::simulation
