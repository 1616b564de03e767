// Implementation of node_shell.hpp, in this order: the state machine, the record, the arbiter, connections, and the end of the
// job.
#include "rendezvous/shell/node_shell.hpp"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

#include "common/base/overloaded.hpp"
#include "common/system/boot_time.hpp"
#include "common/system/realtime.hpp"
#include "rendezvous/identity/hex.hpp"
#include "rendezvous/wire/codec.hpp"

namespace ddprun::rendezvous {
namespace {

constexpr milliseconds kLingerTime{1000};
// The limit for one attempt to connect. It is short enough that the user gets an error message within 5 s.
constexpr milliseconds kAttempt{4000};
// The limit for the first access to the run directory. This access may block the thread, because no lease depends on the
// thread yet.
constexpr milliseconds kFirstProbe{3000};

std::string text_of(const Connection::Endpoint& endpoint) {
  return unmapped(endpoint).address().to_string();
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
      log_(std::move(log)),
      ports_(io, settings_, log_, [this](const std::shared_ptr<Connection>& connection) { accepted(connection); }),
      record_queue_([&io](FileQueue::Work then) { boost::asio::post(io, std::move(then)); }),
      links_(io, *this),
      death_notice_port_(io, settings_.port_range,
                         [this](const RoundId& round) { feed(node_event::DeathNoticeReceived{round}); }),
      timer_(io),
      linger_timer_(io) {
  const auto name = tls_module().digest_of(settings_.run_id + "\n" + settings_.meet_host + "\n" +
                                           std::to_string(settings_.meet_port) + "\n" + settings_.program);
  std::string why;
  record_file_ = RecordFile::claim(record_folder(), to_hex(name), &why);
  restored_state_ = record_file_ ? record_file_->read()
                                 : RestoredState{.self = {}, .job_elsewhere = false, .addresses = {}, .had_storage = false};
  if (record_file_) {
    complaint_ = record_file_->complaint();
  } else if (!why.empty()) {
    complaint_ = "this node cannot store its rendezvous record in " + why +
                 ". The job continues; if this agent is killed, the node rejoins as a new node";
  }
  if (settings_.arbiter.port != 0) {
    etcd_.emplace(io_, settings_.arbiter.host, settings_.arbiter.port, "ddprun/" + settings_.run_id + "/");
    settings_.node.member.arbiter = mark_of(settings_.arbiter.host + " " + std::to_string(settings_.arbiter.port));
  }
  if (!settings_.program.empty()) settings_.node.member.command = mark_of(settings_.program);
  if (!settings_.run_directory.empty()) directory_.emplace(io_, settings_.run_directory);
  marker_ = JobMarker(settings_.marker);
  marker_.add_to(restored_state_);
}

NodeShell::~NodeShell() {
  links_.abandon();
}

// ---- the state machine ----

void NodeShell::begin() {
  const Now time = now();
  unreachable_peers_ = UnreachablePeers(time.steady);
  if (!complaint_.empty()) log_(complaint_);
  if (const ListenPorts& range = settings_.port_range; death_notice_port_.port() == 0 && range.low > 0) {
    log_("--port-range: no UDP port from " + std::to_string(range.low) + " to " + std::to_string(range.high) +
         " is free, so this node receives no death notice: in a job of two nodes, it cannot continue alone after the death of "
         "the other agent, unless it has an arbiter. Use a larger range, or stop the programs that use these ports (ss -lunp)");
  }
  NodeSettings node = settings_.node;
  node.member.node = new_instance_id();
  node.member.death_notice_port = death_notice_port_.port();
  node.member.death_notice_key = death_notice_port_.key();
  if (directory_) {
    node.member.run_directory = directory_->probe(kFirstProbe);
  }
  incarnation_ = next_incarnation(restored_state_, time.realtime_ns);
  node.member.incarnation = incarnation_;
  node_.emplace(std::move(node), std::move(restored_state_), time);
  gate_ = RecordGate(settings_.node.member.rules, node_->member().record());
  feed(node_event::Begin{});
}

void NodeShell::local(MemberEvent event) {
  feed(node_event::Local{std::move(event)});
}

void NodeShell::answer_store(LinkId link, StoreAnswer answer) {
  if (link == kSelfLink) {
    on_event_(std::move(answer));
  } else {
    feed(node_event::StoreAnswered{link, std::move(answer)});
  }
}

void NodeShell::feed(NodeEvent event) {
  pending_.push_back(std::move(event));
  // if feeding_ is set, feed_pending() is already running, and its loop handles the event
  if (!feeding_ && node_) feed_pending();
}

void NodeShell::feed_pending() {
  feeding_ = true;
  while (!pending_.empty() && !ended_) {
    NodeEvent next = std::move(pending_.front());
    pending_.pop_front();
    std::vector<NodeAction> actions = node_->on(std::move(next), now());
    carry_out(record_file_ ? gate_.pass(std::move(actions)) : std::move(actions));
    if (gate_.take_unstarted()) pending_.emplace_back(node_event::Local{member_event::WorkersEnded{}});
  }
  feeding_ = false;
  if (!ended_) arm();
}

void NodeShell::carry_out(std::vector<NodeAction> actions) {
  for (NodeAction& action : actions) carry_out(action);
}

// ---- the record ----

// Writes the record and the job marker on the thread of record_queue_. If neither of these files exists, no thread is started,
// and no message waits for a write.
void NodeShell::write(const member_action::Remember& remember) {
  if (!record_file_ && marker_.path().empty()) return;
  const auto ok = std::make_shared<bool>(true);
  record_queue_.add(
      [this, ok, self = RestoredState::Identity{remember.node, remember.record, incarnation_}] {
        if (record_file_) *ok = record_file_->write(self);
        if (self.record.knows_round()) marker_.note_running();
      },
      [this, ok, alive = std::weak_ptr<int>(alive_)] {
        if (!alive.expired()) written(*ok);
      });
}

// Called when the record was written, or when the write has failed. First processes a Tick with the current time. The process
// may have been suspended during the write, so the grant that allows it to start workers may have expired.
void NodeShell::written(bool ok) {
  if (record_file_) feed(node_event::Tick{});
  if (ended_ || !record_file_) return;
  if (!ok && !std::exchange(write_failure_reported_, true)) {
    log_("the rendezvous record of this node cannot be written to " + record_file_->path().string() + ": " +
         std::generic_category().message(record_file_->write_error()) +
         ". The job continues; if this agent is killed, the node rejoins as a new node");
  }
  feeding_ = true;
  carry_out(gate_.written(ok));
  if (ok) pending_.emplace_back(node_event::Local{member_event::RecordWritten{}});
  feed_pending();
}

void NodeShell::carry_out(NodeAction& action) {
  const Overloaded carry_out_one{
      [this](node_action::Dial& target) { dial(target.link, target.address); },
      [this](node_action::ToDialler& send) {
        const bool is_member = std::holds_alternative<Welcome>(send.message) || std::holds_alternative<Resumed>(send.message);
        if (is_member) links_.set_frame_limit(send.link, kMaxFrameBytes);
        links_.send(send.link, encode(send.message));
      },
      [this](node_action::ToListener& send) { links_.send(send.link, encode(send.message)); },
      [this](node_action::CloseLink& close) { links_.close(close.link); },
      [this](node_action::QueryArbiter& ballot) { query(ballot); },
      [this](member_action::Remember& remember) { write(remember); },
      [this](coordinator_action::SetDeathNotice& notice) {
        on_event_(UpdateDeathNotice{notice.to, death_notice_text(notice.key, notice.round),
                                    record_file_ ? record_file_->path() : std::filesystem::path()});
      },
      [this](node_action::Forget&) {
        if (record_file_) {
          record_queue_.add([this] { record_file_->forget(); }, {},
                            std::make_shared<const std::filesystem::path>(record_file_->path()));
        }
        record_queue_.add([this] { marker_.note_over(); }, {}, std::make_shared<const std::filesystem::path>(marker_.path()));
      },
      [this](node_action::Finish& end) { finish(std::move(end)); },
      [this](NodeNotice& notice) {
        const bool has_joined = notice.kind == NodeNotice::Kind::kFollowing || notice.kind == NodeNotice::Kind::kLeading;
        if (has_joined) unreachable_peers_.joined();
        on_event_(std::move(notice));
      },
      [this](auto& order) { on_event_(std::move(order)); }};
  std::visit(carry_out_one, action);
}

void NodeShell::arm() {
  const auto next = node_->next_deadline();
  if (next == armed_) return;
  armed_ = next;
  timer_.cancel();
  if (!next) return;
  timer_.expires_after(*next - now().steady);  // a suspend of the machine delays this timer, but not the guardian's timer
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    armed_.reset();
    feed(node_event::Tick{});
  });
}

// ---- the arbiter ----

void NodeShell::query(const node_action::QueryArbiter& action) {
  const Ballot& ballot = action.ballot;
  ArbiterPort* arbiter = nullptr;
  if (ballot.arbiter == Arbiter::kEtcd && etcd_) arbiter = &*etcd_;
  if (ballot.arbiter == Arbiter::kRunDirectory && directory_) arbiter = &*directory_;
  const auto answered = [this, ballot, alive = std::weak_ptr<int>(alive_)](ArbiterReply reply) {
    if (!alive.expired() && !ended_ && !finish_) feed(node_event::ArbiterAnswered{ballot, reply.answer, std::move(reply.why)});
  };
  if (arbiter != nullptr) return arbiter->query(key_of(ballot), to_hex(action.self), settings_.node.member.lease / 5, answered);
  boost::asio::post(io_, [answered] {
    answered({BallotAnswer::kNone, "this agent was started without the --arbiter of its job"});
  });
}

// ---- connections ----

void NodeShell::dial(LinkId link, const Address& address) {
  ConnectOptions options;
  options.host = address.host;
  options.port = address.port;
  options.local_address = settings_.local_address;
  // The attempt must time out before the member closes its link (LeaderSearch::dial_due). With a later timeout, the error of
  // the attempt could not be reported.
  options.patience = options.attempt = std::min(kAttempt, settings_.node.member.lease * 9 / 10);
  // Does not retry, because if the other node refuses the connection, its process has ended.
  if ((link & kResume) != 0) options.patience = milliseconds(0);
  links_.dial(link, ports_.transport(), std::move(options));
}

void NodeShell::accepted(const std::shared_ptr<Connection>& connection) {
  if (ended_ || finish_ || !node_) return connection->close();
  links_.accept(connection, kMaxFirstFrameBytes);
}

void NodeShell::opened(LinkId link, const Connection& connection) {
  if ((link & kDialled) != 0) {
    own_address_ = text_of(connection.local());
    leader_address_ = text_of(connection.remote());
    // The lock of the run directory is probed after the connection is open and not before. If both nodes were started
    // together, the other node may have taken the lock only after this node started to connect.
    if (directory_ && (link & (kAnnounce | kResume)) == 0)
      feed(node_event::RunDirectoryProbed{directory_->probe(FileQueue::kMaxBlock)});
    return feed(node_event::LinkOpened{link, own_address_, own_address_});
  }
  const auto local = unmapped(connection.local()).address();
  if (own_address_.empty() || !local.is_loopback()) own_address_ = local.to_string();
  feed(node_event::LinkOpened{link, {}, own_address_});
}

void NodeShell::received(LinkId link, std::string_view frame) {
  try {
    if ((link & kDialled) != 0) {
      FromCoordinator message = decode_from_coordinator(frame);
      if (const auto* welcome = std::get_if<Welcome>(&message))
        links_.give_up_after(link, clamped_milliseconds(welcome->lease_ms));
      feed(node_event::FromListener{link, std::move(message)});
    } else {
      feed(node_event::FromDialler{link, decode_from_member(frame)});
    }
  } catch (const ProtocolError&) {  // the other node has violated the protocol, so it counts as lost
    links_.cut(link);
  }
}

void NodeShell::not_opened(LinkId link, const ConnectFailure& failure) {
  if (!node_->searches_for_old_job()) report(unreachable_peers_.failed_to_connect(failure, now().steady));
  using Kind = ConnectFailure::Kind;
  const bool in_the_way = failure.kind == Kind::kUnreachable || failure.kind == Kind::kSilent || failure.kind == Kind::kLost;
  if (!ended_) feed(node_event::LinkClosed{link, in_the_way});
}

void NodeShell::lost(LinkId link, bool reset) {
  feed(node_event::LinkClosed{link, reset});
}

void NodeShell::nothing_received(const Connection& connection) {
  report(unreachable_peers_.silent(to_text(connection.remote()), now().steady));
}

void NodeShell::report(UnreachablePeers::Report report) {
  if (ended_) return;
  if (auto* none = std::get_if<NoNodeAnswers>(&report)) return on_event_(std::move(*none));
  auto* const end = std::get_if<node_action::Finish>(&report);
  if (end == nullptr) return;
  ended_ = true;
  timer_.cancel();
  on_event_(std::move(*end));
}

// ---- the end ----

void NodeShell::finish(node_action::Finish action) {
  unreachable_peers_.explain(action);
  finish_ = std::move(action);
  links_.close_all();
  ports_.close();
  linger_timer_.expires_after(kLingerTime);
  linger_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    links_.forget_closing();
    report_finished();
  });
  report_finished();
}

void NodeShell::report_finished() {
  if (!finish_ || links_.are_closing() || ended_) return;
  linger_timer_.cancel();
  ended_ = true;
  on_event_(*finish_);
}

}  // namespace ddprun::rendezvous
