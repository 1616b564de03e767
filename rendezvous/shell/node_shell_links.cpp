// Implementation of node_shell.hpp, second part: its connections, and what is said of those that cannot be had.
#include <algorithm>
#include <utility>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>

#include "common/base/error.hpp"
#include "rendezvous/shell/node_shell.hpp"
#include "rendezvous/wire/codec.hpp"

namespace ddprun::rendezvous {
namespace {

using Kind = ConnectFailure::Kind;

// One attempt to reach somebody; what is wrong is said within 5 s.
constexpr milliseconds kAttempt{4000};
// So long a name may be unknown, a port another job's: the others may be just starting.
constexpr milliseconds kPatience{3500};

std::string text_of(const Connection::Endpoint& endpoint) {
  return unmapped(endpoint).address().to_string();
}

}  // namespace

void NodeShell::dial(LinkId link, const Address& address) {
  const auto dialling = std::make_shared<Dialling>();
  dialling_[link] = dialling;
  ConnectOptions options;
  options.host = address.host;
  options.port = address.port;
  options.local_address = settings_.local_address;
  // Before the member gives it up (Member::dial_due), so that what is wrong is known.
  options.patience = options.attempt = std::min(kAttempt, settings_.node.member.lease * 9 / 10);
  boost::asio::co_spawn(io_, transport_->connect(std::move(options)),
                        boost::asio::bind_cancellation_slot(dialling->cancel.slot(),
                                                            [this, link, dialling, alive = std::weak_ptr<int>(alive_)](
                                                                const std::exception_ptr& error, const ConnectResult& result) {
                                                              if (alive.expired()) return;
                                                              if (error) std::rethrow_exception(error);
                                                              dialled(link, result);
                                                            }));
}

void NodeShell::dialled(LinkId link, const ConnectResult& result) {
  if (dialling_.erase(link) == 0) {  // nobody wants it any more
    if (result.connection) result.connection->close();
    return;
  }
  if (!result.connection) {
    not_connected(result.failure);
    if (!failed_) feed(node_event::LinkClosed{link});
    return;
  }
  const std::string local = text_of(result.connection->local());
  own_address_ = local;
  leader_address_ = text_of(result.connection->remote());
  connections_[link] = result.connection;
  feed(node_event::LinkOpened{link, local});
  start(link, result.connection);
}

// Only for who never belonged to the job: later, what is at an address may be anybody's.
void NodeShell::not_connected(const ConnectFailure& failure) {
  if (welcome_ || remembered_ || failed_) return;
  const bool for_long = waits_for_long();
  ExitCode code = ExitCode::kPeersMissing;
  bool hopeless = false;
  switch (failure.kind) {
    case Kind::kWrongToken:
      code = ExitCode::kTokenRefused;
      hopeless = true;
      break;
    case Kind::kBadLocalAddress:
      code = ExitCode::kUsage;
      hopeless = true;
      break;
    case Kind::kWrongVersion:
    case Kind::kReflected:
      hopeless = true;
      break;
    case Kind::kUnresolvable:
    case Kind::kSilent:
    case Kind::kNotDdprun:
    case Kind::kWrongRunId:
      hopeless = for_long;
      break;
    case Kind::kRefused:
    case Kind::kUnreachable:
    case Kind::kLost:
      if (for_long) say_nobody(failure.message);
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

void NodeShell::say_nobody(const std::string& why) {
  if (!std::exchange(said_nobody_, true)) on_event_(NobodyThere{why});
}

// The member gives up a connection over which nothing came.
void NodeShell::note_silence(LinkId link, const Connection& connection) {
  if (welcome_ || (link & kDialled) == 0 || heard_.contains(link) || !waits_for_long()) return;
  say_nobody("the agent at " + to_text(connection.remote()) +
             " took the connection, and then nothing came. Packets may get lost on the way, or that node may be stopped");
}

void NodeShell::accepted(const std::shared_ptr<Connection>& connection) {
  if (failed_ || finish_ || !node_) return connection->close();
  const LinkId link = next_accepted_++;
  connection->set_frame_limit(kMaxFirstFrameBytes);
  const auto local = unmapped(connection->local()).address();
  if (own_address_.empty() || !local.is_loopback()) own_address_ = local.to_string();
  connections_[link] = connection;
  feed(node_event::LinkOpened{link, {}});
  start(link, connection);
}

void NodeShell::start(LinkId link, const std::shared_ptr<Connection>& connection) {
  if (!connections_.contains(link)) return;  // closed at once
  connection->start({[this, link](std::string_view frame) { heard(link, frame); },
                     [this, link, connection](const Closed&) {
                       leaving_.erase(connection);
                       closed(link);
                       say_finished();
                     }});
}

void NodeShell::heard(LinkId link, std::string_view frame) {
  if (!connections_.contains(link)) return;
  try {
    if ((link & kDialled) != 0) {
      heard_.insert(link);
      feed(node_event::FromListener{link, decode_from_coordinator(frame)});
    } else {
      feed(node_event::FromDialler{link, decode_from_member(frame)});
    }
  } catch (const ProtocolError&) {  // a member's own fault: the node is lost
    if (const auto found = connections_.find(link); found != connections_.end()) found->second->close();
    closed(link);
  }
}

void NodeShell::closed(LinkId link) {
  heard_.erase(link);
  if (connections_.erase(link) > 0) feed(node_event::LinkClosed{link});
}

void NodeShell::close_link(LinkId link) {
  if (const auto dialling = dialling_.find(link); dialling != dialling_.end()) {
    const auto one = dialling->second;
    dialling_.erase(dialling);
    one->cancel.emit(boost::asio::cancellation_type::terminal);
    return;
  }
  const auto found = connections_.find(link);
  if (found == connections_.end()) return;
  const auto connection = found->second;
  connections_.erase(found);
  note_silence(link, *connection);
  heard_.erase(link);
  if (connection->is_open()) leaving_.insert(connection);
  connection->finish();
}

void NodeShell::send(LinkId link, std::string_view frame) {
  const auto found = connections_.find(link);
  if (found == connections_.end()) return;
  found->second->send(frame);
}

}  // namespace ddprun::rendezvous
