// Implementation of node_shell.hpp: its ports, the state machine, its connections, messages about unreachable peers, and the
// end.
//
// Note [Why this file is long]
// The object owns everything that the state machine acts on, so each action has a few lines here. Parts with a separate state
// have separate files: links, the record, the arbiters, the farewell port.
#include "rendezvous/shell/node_shell.hpp"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>

#include "common/base/error.hpp"
#include "common/system/boot_time.hpp"
#include "common/system/realtime.hpp"
#include "rendezvous/identity/hex.hpp"
#include "rendezvous/transport/handover.hpp"
#include "rendezvous/wire/codec.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr milliseconds kFarewell{1000};
constexpr std::size_t kMaxQueuedBytes = 96u << 20;  // bytes; holds a few of the largest store values
// The limit for one attempt to connect, so that the user gets an error message within 5 s.
constexpr milliseconds kAttempt{4000};
// Failures to connect are not reported before this time: the other nodes may be just starting.
constexpr milliseconds kPatience{3500};
// The limit for the first query of the run directory. It may block, since this node has no lease to renew yet.
constexpr milliseconds kFirstLook{3000};

TransportLimits limits(milliseconds lease) {
  TransportLimits limits;
  limits.give_up_after(lease);
  limits.frame_bytes = kMaxFrameBytes;
  limits.write_queue_bytes = kMaxQueuedBytes;
  return limits;
}

TlsCredentials credentials(const NodeShellSettings& settings, std::string_view run_id, const InstanceId& instance) {
  return {.token = settings.token,
          .run_id = run_id,
          .protocol_version = static_cast<std::uint8_t>(kProtocolVersion),
          .instance = instance};
}

std::string text_of(const Connection::Endpoint& endpoint) {
  return unmapped(endpoint).address().to_string();
}

// The local address of the route to the internet. Connecting a UDP socket sends nothing: the kernel only looks up the route.
std::string address_of_route() {
  const int fd = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "";
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(9);
  address.sin_addr.s_addr = htonl(0xC0000201);  // 192.0.2.1 is reserved for documentation
  socklen_t size = sizeof address;
  const bool known = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
                     ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  ::close(fd);
  return known ? boost::asio::ip::address_v4(ntohl(address.sin_addr.s_addr)).to_string() : "";
}

}  // namespace

Now NodeShell::now() {
  return {Time(time_since_boot()), realtime_ns()};
}

NodeShell::NodeShell(boost::asio::io_context& io, NodeShellSettings settings, std::function<void(ShellEvent)> on_event,
                     std::function<void(const std::string&)> log)
    : io_(io),
      settings_(std::move(settings)),
      on_event_(std::move(on_event)),
      record_queue_([&io](FileQueue::Work then) { boost::asio::post(io, std::move(then)); }),
      links_(io, {.opened = [this](LinkId link, const Connection& connection) { opened(link, connection); },
                  .not_opened = [this](LinkId link, const ConnectFailure& failure) { not_opened(link, failure); },
                  .heard = [this](LinkId link, std::string_view frame) { heard(link, frame); },
                  .lost =
                      [this](LinkId link, bool reset) {
                        feed(node_event::LinkClosed{link, reset});
                      },
                  .no_word = [this](const Connection& connection) { note_silence(connection); },
                  .ended = [this] { say_finished(); }}),
      farewell_port_(io, [this](const RoundId& round) { feed(node_event::Farewell{round}); }),
      timer_(io),
      farewell_(io) {
  const InstanceId instance = new_instance_id();
  transport_ = std::make_unique<Transport>(io, credentials(settings_, settings_.run_id, instance),
                                           limits(settings_.node.member.lease), log);
  join_transport_ =
      std::make_unique<Transport>(io, credentials(settings_, kJoinRunId, instance), limits(settings_.node.member.lease), log);
  log_ = std::move(log);
  std::fill(settings_.token.begin(), settings_.token.end(), '\0');
  settings_.token.clear();
  listen();

  const auto& digest = transport_->run();
  std::copy(digest.begin(), digest.end(), settings_.node.member.run.begin());
  const auto name = tls_module().digest_of(settings_.run_id + "\n" + settings_.meet_host + "\n" +
                                           std::to_string(settings_.meet_port) + "\n" + settings_.program);
  std::string why;
  record_file_ = RecordFile::claim(record_folder(), to_hex(name), &why);
  memory_ = record_file_ ? record_file_->read() : Memory{.self = {}, .job_elsewhere = false, .places = {}, .kept = false};
  if (record_file_) {
    complaint_ = record_file_->complaint();
  } else if (!why.empty()) {
    complaint_ = "this node keeps no record in " + why + ". If its agent is killed, it comes back as a new node";
  }
  if (settings_.arbiter.port != 0) {
    etcd_.emplace(io_, settings_.arbiter.host, settings_.arbiter.port, "ddprun/" + settings_.run_id + "/");
    settings_.node.member.arbiter = mark_of(settings_.arbiter.host + " " + std::to_string(settings_.arbiter.port));
  }
  if (!settings_.program.empty()) settings_.node.member.command = mark_of(settings_.program);
  if (!settings_.run_directory.empty()) directory_.emplace(io_, settings_.run_directory);
  marker_ = JobMarker(settings_.marker);
  marker_.add_to(memory_);
}

NodeShell::~NodeShell() {
  links_.abandon();
}

// ---- ports ----

std::unique_ptr<Listener> NodeShell::open(std::uint16_t port) {
  ListenOptions options;
  options.port = port;
  options.range = settings_.port_range;
  options.hand_over = [this](const ShortRunDigest& run, int fd, std::string_view hello) { return take_join(run, fd, hello); };
  if (port != 0 && settings_.closing == NodeShellSettings::MeetPort::kServesStore) {
    options.take_foreign = settings_.take_store_client;
  }
  const auto on_member = [this](const std::shared_ptr<Connection>& connection) { accepted(connection); };
  const bool shared = settings_.closing == NodeShellSettings::MeetPort::kStays;
  if (shared) return listen_on_shared_port(io_, *transport_, std::move(options), on_member);
  return transport_->listen(std::move(options), on_member);
}

void NodeShell::listen() {
  using Lead = NodeShellSettings::Lead;
  MemberSettings& member = settings_.node.member;
  settings_.node.leads_first = settings_.lead != Lead::kNo;
  if (settings_.node.leads_first) {
    try {
      meet_listener_ = open(settings_.meet_port);
      settings_.meet_port = meet_listener_->local().port();
    } catch (const UsageError&) {
      if (settings_.lead == Lead::kYes) throw;
      settings_.node.leads_first = false;
    }
  }
  const bool one_port = meet_listener_ && settings_.closing != NodeShellSettings::MeetPort::kClosesAtRelease;
  if (!one_port) listener_ = open(0);
  join_listener_ = join_transport_->listen(
      {.address = {}, .port = 0, .range = {}, .open = ListenOptions::Port::kNone, .hand_over = {}, .take_foreign = {}},
      [this](const std::shared_ptr<Connection>& connection) {
        connection->start({});
        connection->send(settings_.job);
        connection->finish();
      });
  member.listens = {.host = settings_.local_address, .port = (one_port ? meet_listener_ : listener_)->local().port()};
  member.own_host = address_of_route();
  if (member.own_host.empty()) member.own_host = "127.0.0.1";
  if (settings_.node.leads_first) {
    member.wanted_group_rank = 0;
    if (member.listens.host.empty()) member.listens.host = settings_.meet_host;
    if (member.listens.host.empty()) member.listens.host = member.own_host;
  } else {
    member.endpoints = {{settings_.meet_host.empty() ? "127.0.0.1" : settings_.meet_host, settings_.meet_port}};
    // A given master address is only for the first coordinator.
    settings_.node.coordinator.master_addr.clear();
    settings_.node.coordinator.master_port = 0;
  }
}

bool NodeShell::take_join(const ShortRunDigest& run, int fd, std::string_view hello) {
  if (run != join_transport_->run()) return false;
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return false;
  join_listener_->adopt(copy, hello);
  return true;
}

void NodeShell::close_meet_port() {
  if (meet_listener_ && settings_.closing == NodeShellSettings::MeetPort::kClosesAtRelease) meet_listener_.reset();
}

std::uint16_t NodeShell::port_with_store() const {
  return meet_listener_ && settings_.closing == NodeShellSettings::MeetPort::kServesStore ? settings_.meet_port : 0;
}

Address NodeShell::meeting_point() const {
  return settings_.node.member.listens;
}

// ---- the machine ----

void NodeShell::begin() {
  const Now time = now();
  began_ = time.steady;
  if (!complaint_.empty()) log_(complaint_);
  NodeSettings node = settings_.node;
  node.member.id = new_instance_id();
  node.member.farewell_port = farewell_port_.port();
  node.member.farewell_key = farewell_port_.key();
  if (directory_) {
    node.member.run_directory = directory_->probe(kFirstLook);
  }
  incarnation_ = next_incarnation(memory_, time.realtime_ns);
  node.member.incarnation = incarnation_;
  node_.emplace(std::move(node), std::move(memory_), time);
  gate_ = RecordGate(settings_.node.member.rules, node_->member().record());
  feed(node_event::Begin{});
}

void NodeShell::local(MemberEvent event) {
  feed(node_event::Local{std::move(event)});
}

void NodeShell::answer_store(LinkId link, StoreAnswer answer) {
  if (link == kSelfLink) {
    on_event_(member_action::AnswerStore{answer.rank, std::move(answer.reply)});
  } else {
    feed(node_event::StoreAnswered{link, std::move(answer)});
  }
}

void NodeShell::feed(NodeEvent event) {
  pending_.push_back(std::move(event));
  if (!feeding_ && node_) feed_pending();  // otherwise the loop further up the stack handles it
}

void NodeShell::feed_pending() {
  feeding_ = true;
  while (!pending_.empty() && !failed_) {
    NodeEvent next = std::move(pending_.front());
    pending_.pop_front();
    std::vector<NodeAction> actions = node_->on(std::move(next), now());
    carry_out(record_file_ ? gate_.pass(std::move(actions)) : std::move(actions));
    if (gate_.take_unstarted()) pending_.emplace_back(node_event::Local{member_event::WorkersEnded{}});
  }
  feeding_ = false;
  if (!failed_) arm();
}

void NodeShell::carry_out(std::vector<NodeAction> actions) {
  for (NodeAction& action : actions) carry_out(action);
}
// ---- the record ----

// Without a record file and a marker, no thread is started, and nothing waits for a write.
void NodeShell::write(const member_action::Remember& remember) {
  if (!record_file_ && marker_.path().empty()) return;
  const auto ok = std::make_shared<bool>(true);
  record_queue_.add(
      [this, ok, self = Memory::Self{remember.node, remember.record, incarnation_}] {
        if (record_file_) *ok = record_file_->write(self);
        if (self.record.knows_round()) marker_.note_running();
      },
      [this, ok, alive = std::weak_ptr<int>(alive_)] {
        if (!alive.expired()) written(*ok);
      });
}

// The node first gets the current time: the process may have been suspended during the write, so that the grant of a start is
// over.
void NodeShell::written(bool ok) {
  if (record_file_) feed(node_event::Tick{});
  if (failed_ || !record_file_) return;
  if (!ok && !std::exchange(said_unwritten_, true)) {
    log_("the record of this node cannot be written to " + record_file_->path().string() + ": " +
         std::generic_category().message(record_file_->write_error()) +
         ". The job continues; if this agent is killed, it comes back as a new node");
  }
  feeding_ = true;
  carry_out(gate_.written(ok));
  if (ok) pending_.emplace_back(node_event::Local{member_event::RecordWritten{}});
  feed_pending();
}

void NodeShell::carry_out(NodeAction& action) {
  std::visit(
      [this](auto& concrete) {
        using Action = std::decay_t<decltype(concrete)>;
        if constexpr (std::is_same_v<Action, node_action::ToDialler>) {
          const bool is_member =
              std::holds_alternative<Welcome>(concrete.message) || std::holds_alternative<Resumed>(concrete.message);
          if (is_member) links_.set_frame_limit(concrete.link, kMaxFrameBytes);
          links_.send(concrete.link, encode(concrete.message));
        } else if constexpr (std::is_same_v<Action, node_action::ToListener>) {
          links_.send(concrete.link, encode(concrete.message));
        } else if constexpr (std::is_same_v<Action, node_action::CloseLink>) {
          links_.close(concrete.link);
        } else if constexpr (std::is_same_v<Action, member_action::Dial>) {
          dial(concrete.link, concrete.address);
        } else if constexpr (std::is_same_v<Action, node_action::AskArbiter>) {
          ask(concrete);
        } else if constexpr (std::is_same_v<Action, member_action::Remember>) {
          write(concrete);
        } else if constexpr (std::is_same_v<Action, coordinator_action::Entrust>) {
          on_event_(EntrustFarewell{concrete.to, farewell_text(concrete.key, concrete.round),
                                    record_file_ ? record_file_->path() : std::filesystem::path()});
        } else if constexpr (std::is_same_v<Action, node_action::Forget>) {
          if (record_file_) {
            record_queue_.add([this] { record_file_->forget(); }, {},
                              std::make_shared<const std::filesystem::path>(record_file_->path()));
          }
          record_queue_.add([this] { marker_.note_over(); }, {}, std::make_shared<const std::filesystem::path>(marker_.path()));
        } else if constexpr (std::is_same_v<Action, node_action::Finish>) {
          finish(std::move(concrete));
        } else {
          if constexpr (std::is_same_v<Action, member_action::Say>) {
            const auto kind = concrete.notice.kind;
            if (kind == NodeNotice::Kind::kFollowing || kind == NodeNotice::Kind::kLeading) welcome_ = true;
          }
          on_event_(std::move(concrete));
        }
      },
      action);
}

void NodeShell::arm() {
  const auto next = node_->next_deadline();
  if (next == armed_) return;
  armed_ = next;
  timer_.cancel();
  if (!next) return;
  timer_.expires_after(*next - now().steady);  // a suspend delays this timer, but not that of the guardian
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    armed_.reset();
    feed(node_event::Tick{});
  });
}

// ---- the arbiter ----

void NodeShell::ask(const node_action::AskArbiter& action) {
  const Ballot& ballot = action.ballot;
  ArbiterPort* arbiter = nullptr;
  if (ballot.arbiter == Arbiter::kEtcd && etcd_) arbiter = &*etcd_;
  if (ballot.arbiter == Arbiter::kRunDirectory && directory_) arbiter = &*directory_;
  const auto answered = [this, ballot, alive = std::weak_ptr<int>(alive_)](ArbiterReply reply) {
    if (!alive.expired() && !failed_ && !finish_) feed(node_event::ArbiterAnswered{ballot, reply.answer, std::move(reply.why)});
  };
  if (arbiter != nullptr) return arbiter->ask(place_of(ballot), to_hex(action.self), settings_.node.member.lease / 5, answered);
  boost::asio::post(io_, [answered] {
    answered({BallotAnswer::kNone, "this agent was started without the arbiter of its round"});
  });
}

// ---- connections ----

void NodeShell::dial(LinkId link, const Address& address) {
  ConnectOptions options;
  options.host = address.host;
  options.port = address.port;
  options.local_address = settings_.local_address;
  // The attempt ends before the member gives it up (LeaderSearch::dial_due), so that its error can be reported.
  options.patience = options.attempt = std::min(kAttempt, settings_.node.member.lease * 9 / 10);
  if ((link & kResume) != 0) options.patience = milliseconds(0);  // a peer that refuses the connection is gone
  links_.dial(link, *transport_, std::move(options));
}

void NodeShell::accepted(const std::shared_ptr<Connection>& connection) {
  if (failed_ || finish_ || !node_) return connection->close();
  links_.accept(connection, kMaxFirstFrameBytes);
}

void NodeShell::opened(LinkId link, const Connection& connection) {
  if ((link & kDialled) != 0) {
    own_address_ = text_of(connection.local());
    leader_address_ = text_of(connection.remote());
    // Not earlier: if both nodes were started together, the other node may have taken the lock only after this node began to
    // dial.
    if (directory_ && (link & (kAnnounce | kResume)) == 0)
      feed(node_event::SawRunDirectory{directory_->probe(FileQueue::kMoment)});
    return feed(node_event::LinkOpened{link, own_address_, own_address_});
  }
  const auto local = unmapped(connection.local()).address();
  if (own_address_.empty() || !local.is_loopback()) own_address_ = local.to_string();
  feed(node_event::LinkOpened{link, {}, own_address_});
}

void NodeShell::heard(LinkId link, std::string_view frame) {
  try {
    if ((link & kDialled) != 0) {
      FromCoordinator message = decode_from_coordinator(frame);
      if (const auto* welcome = std::get_if<Welcome>(&message)) links_.give_up_after(link, sensible(welcome->lease_ms));
      feed(node_event::FromListener{link, std::move(message)});
    } else {
      feed(node_event::FromDialler{link, decode_from_member(frame)});
    }
  } catch (const ProtocolError&) {  // the member violated the protocol: its node is lost
    links_.cut(link);
  }
}

void NodeShell::not_opened(LinkId link, const ConnectFailure& failure) {
  note_failure(failure);
  using Kind = ConnectFailure::Kind;
  const bool in_the_way = failure.kind == Kind::kUnreachable || failure.kind == Kind::kSilent || failure.kind == Kind::kLost;
  if (!failed_) feed(node_event::LinkClosed{link, in_the_way});
}

// Only a node that never belonged to the job reports this. Later, any other program may use that address.
void NodeShell::note_failure(const ConnectFailure& failure) {
  if (welcome_ || failed_ || node_->looks_for_old_job()) return;
  const bool for_long = waits_for_long();
  ExitCode code = ExitCode::kPeersMissing;
  bool hopeless = true;
  using Kind = ConnectFailure::Kind;
  switch (failure.kind) {
    case Kind::kWrongToken:
      code = ExitCode::kTokenRefused;
      break;
    case Kind::kBadLocalAddress:
      code = ExitCode::kUsage;
      break;
    case Kind::kWrongVersion:
    case Kind::kReflected:
      break;
    case Kind::kNotDdprun:
      hopeless = for_long;
      break;
    // All of these can be temporary: the machine is not up yet, the node is not started or is stopped, or the job is just
    // ending.
    case Kind::kUnresolvable:
    case Kind::kSilent:
    case Kind::kWrongRunId:
    case Kind::kRefused:
    case Kind::kUnreachable:
    case Kind::kLost:
      last_failure_ = failure.message;
      if (for_long && said_of_.insert(failure.kind).second) on_event_(NobodyThere{failure.message});
      return;
    case Kind::kCancelled:
      return;
  }
  if (!hopeless) return;
  failed_ = true;
  timer_.cancel();
  on_event_(CannotJoin{static_cast<int>(code), failure.message});
}

bool NodeShell::waits_for_long() const {
  return now().steady - began_ >= kPatience;
}

// The member gives up a connection that received nothing.
void NodeShell::note_silence(const Connection& connection) {
  if (welcome_ || !waits_for_long() || std::exchange(said_silence_, true)) return;
  on_event_(
      NobodyThere{"the agent at " + to_text(connection.remote()) +
                  " took the connection, and then nothing came. Packets may get lost on the way, or that node may be stopped"});
}

// ---- the end ----

void NodeShell::finish(node_action::Finish action) {
  if (!welcome_ && !last_failure_.empty() && action.exit_code == static_cast<int>(ExitCode::kPeersMissing)) {
    action.why += ": " + last_failure_;
  }
  finish_ = std::move(action);
  links_.close_all();
  meet_listener_.reset();
  listener_.reset();
  farewell_.expires_after(kFarewell);
  farewell_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    links_.forget_leaving();
    say_finished();
  });
  say_finished();
}

void NodeShell::say_finished() {
  if (!finish_ || links_.are_leaving() || failed_) return;
  farewell_.cancel();
  failed_ = true;  // no further events
  on_event_(*finish_);
}

}  // namespace ddprun::rendezvous
