// Implementation of job_link.hpp: one function for each message from the workers or from other nodes.
#include "launcher/network/job_link.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include <boost/asio/post.hpp>

#include "common/base/overloaded.hpp"
#include "common/system/boot_time.hpp"
#include "common/system/realtime.hpp"
#include "launcher/machine/local_address.hpp"
#include "launcher/restart_policy/job_judge.hpp"

namespace ddprun {
namespace {

using rendezvous::NodeNotice;
namespace member_action = rendezvous::member_action;

// Maximum time for which the start of a round waits for the name resolver. The resolver's answer shows whether the master's
// name is a loopback name on this node.
constexpr std::chrono::seconds kResolverTimeout{2};

// Returns true for events about a round's workers. If the round's release (the message that starts the round) is delayed,
// these events must be delayed too.
bool concerns_workers(const rendezvous::ShellEvent& event) {
  using rendezvous::NoNodeAnswers, rendezvous::UpdateDeathNotice;
  return std::visit<bool>(
      Overloaded{IgnoredAs<std::false_type, member_action::ExtendWorkerLease, NodeNotice, rendezvous::StoreAnswer,
                           rendezvous::NodeQuery, rendezvous::JobAnswer, rendezvous::node_action::ServeStore>{},
                 IgnoredAs<std::true_type, NoNodeAnswers, UpdateDeathNotice, member_action::StartWorkers,
                           member_action::StopWorkers, member_action::DismissHeld, rendezvous::StopAndSave, rendezvous::StopAt,
                           rendezvous::node_action::Finish>{}},
      event);
}

std::string to_text(const rendezvous::Address& address) {
  const bool bare_ipv6 = address.host.find(':') != std::string::npos;
  return (bare_ipv6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

// Writes the sockaddr of a numeric address and returns its size. Returns 0 if `host` is not numeric.
socklen_t to_sockaddr(const std::string& host, std::uint16_t port, sockaddr_storage& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return 0;
  const socklen_t size = found->ai_addrlen;
  std::memcpy(&address, found->ai_addr, size);
  ::freeaddrinfo(found);
  return size;
}

// Returns a warning if the nodes meet at a loopback address, which other machines cannot reach. Returns "" otherwise.
std::string loopback_hint(const std::string& typed, const std::string& listens) {
  const bool is_typed = typed == "localhost" || is_loopback_number(typed);
  if (!is_typed && !is_loopback_number(listens)) return "";
  return "nodes on other machines cannot reach this node: " + (is_typed ? typed : listens) +
         " is a loopback address. Give a network address in --master-addr or --rdzv-endpoint, unless all nodes run on this "
         "machine";
}

}  // namespace

JobLink::JobLink(boost::asio::io_context& io, NetworkStart start, const Plan& plan, Agent& agent)
    : plan_(plan),
      agent_(agent),
      token_file_(std::move(start.token_file)),
      closes_meet_port_(start.shell.closing == rendezvous::NodeShellSettings::MeetPort::kClosesAtRelease),
      next_port_(HeldPort::any(plan.rendezvous.port_range)),
      store_clients_of_port_(io),
      store_(io,
             [this](int rank, const channel::StoreReply& reply) {
               const auto client = store_clients_.find(rank);
               if (client != store_clients_.end()) shell_.answer_store(client->second, {store_round_, rank, reply});
             }),
      names_([&io](std::function<void()> act) { boost::asio::post(io, std::move(act)); }),
      name_timer_(io),
      shell_(
          io, complete(std::move(start.shell)),
          [this](rendezvous::ShellEvent event) {
            if (concerns_workers(event)) feed_release();
            std::visit([this](auto& one) { handle(std::move(one)); }, event);
          },
          [this](const std::string& line) { publish_notice(NodeNotice::Kind::kRefused, line); }) {}

// Adds the settings that depend on this object. The restart decision (judge) also uses the newest checkpoint that was reported
// to this node. Checkpoints are reported only to the coordinator's node, so a failure report of another node may contain an
// older checkpoint.
rendezvous::NodeShellSettings JobLink::complete(rendezvous::NodeShellSettings settings) {
  settings.take_store_client = [this](int fd, std::string_view bytes) { return store_clients_of_port_.take(fd, bytes); };
  settings.node.member.master_port = static_cast<std::uint16_t>(next_port_->port());
  // Additional time for a node to become ready for the next round. Some workers do not end even after SIGKILL. An agent needs
  // up to a minute after the shutdown timeout to detect this (slow_stop.hpp).
  constexpr std::chrono::seconds kStopMargin{75};
  settings.node.coordinator.ready_timeout =
      std::max(settings.node.coordinator.ready_timeout, plan_.shutdown_timeout + kStopMargin);
  settings.node.coordinator.judge = [this](const rendezvous::FailureReport& first, const rendezvous::Budget& before) {
    rendezvous::FailureReport report = first;
    report.failed.newest_checkpoint = std::max(report.failed.newest_checkpoint, newest_checkpoint_);
    report.failed.resumed_from = std::max(report.failed.resumed_from, resumed_from_);
    return judge(report, before, restart_limits(plan_));
  };
  return settings;
}

void JobLink::begin() {
  if (shell_.leads_first()) {
    publish_notice(NodeNotice::Kind::kLeading, join_hint());
    if (const std::string line = loopback_hint(plan_.rendezvous.host, shell_.meeting_point().host); !line.empty())
      publish_notice(NodeNotice::Kind::kWaiting, line);
  } else {
    const RendezvousPlan& meeting = plan_.rendezvous;
    const std::string host = meeting.host.empty() ? "127.0.0.1" : meeting.host;
    publish_notice(NodeNotice::Kind::kSearching, "looking for the job '" + plan_.run_id + "' at " +
                                                     to_text({host, static_cast<std::uint16_t>(meeting.port)}));
  }
  shell_.begin();
}

std::string JobLink::join_hint() const {
  const RendezvousPlan& meeting = plan_.rendezvous;
  const std::string nodes = meeting.min_nodes == meeting.max_nodes
                                ? std::to_string(meeting.max_nodes)
                                : std::to_string(meeting.min_nodes) + " to " + std::to_string(meeting.max_nodes);
  std::string text = "this node coordinates the job '" + plan_.run_id + "' of " + nodes +
                     " nodes. On each other node, run the same command or:\n    ddprun join " + to_text(shell_.meeting_point());
  if (token_file_.empty()) return text + "    (with the same DDPRUN_TOKEN)";
  return text + " --token-file FILE    (FILE: a copy of " + token_file_ + ")";
}

// ---- actions of this node's AgentState ----

void JobLink::carry_out(const agent_action::ReportRoundOver& action) {
  agent_.set_deadline(std::nullopt);
  if (!next_port_) next_port_ = HeldPort::any(plan_.rendezvous.port_range);
  shell_.local(to_member(action, static_cast<std::uint16_t>(next_port_->port())));
}

void JobLink::send_store_request(int local_rank, const channel::StoreRequest& request) {
  shell_.local(rendezvous::StoreQuery{.rank = release().rank_offset + local_rank, .request = request});
}

// ---- events from the other nodes ----

void JobLink::handle(rendezvous::NoNodeAnswers&& event) {
  const auto most = std::chrono::duration_cast<std::chrono::seconds>(plan_.rendezvous.join_timeout);
  std::string why = from_peer(event.why);
  if (!why.ends_with('?') && !why.ends_with('.')) why += ".";
  publish_notice(NodeNotice::Kind::kWaiting,
                 why + " Still trying, for at most " + std::to_string(most.count()) + " s (--rdzv-conf join_timeout)");
}

void JobLink::handle(rendezvous::UpdateDeathNotice&& event) {
  guardian::DeathNotice word;
  const std::string record = event.record.string();
  if (event.to.port != 0 && event.text.size() <= word.text.size() && record.size() < word.record.size()) {
    word.to_size = static_cast<std::uint32_t>(to_sockaddr(event.to.host, event.to.port, word.to));
    word.size = static_cast<std::uint32_t>(event.text.size());
    std::copy(event.text.begin(), event.text.end(), word.text.begin());
    std::copy(record.begin(), record.end(), word.record.begin());
  }
  agent_.set_death_notice(word);
}

void JobLink::handle(member_action::StartWorkers&& event) {
  release_state_.announce(std::move(event.release));
  resumed_from_ = newest_checkpoint_;
  extend_lease(event.until);
  look_up_master();
}

// Starts the round, after a query of the resolver if the master may have a loopback name. Only the resolver can decide whether
// the name means "this node" on every node (see master()). The worker lease is extended in the meantime.
void JobLink::look_up_master() {
  const std::string named = named_master(release_state_.newest()).host;
  const std::string& leader = shell_.leader_address();
  const bool is_unusable = release_state_.newest().group_rank == 0 || leader.empty() || is_loopback_number(leader);
  if (is_unusable || is_number(named) || is_loopback_name_.contains(named)) return feed_release();
  names_.query(named, [this, named](const NameAnswer& answer) {
    if (!answer.addresses.empty()) is_loopback_name_[named] = is_loopback_number(answer.addresses.front());
    if (named == named_master(release_state_.newest()).host) feed_release();
  });
  name_timer_.expires_after(kResolverTimeout);
  name_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) feed_release();
  });
}

void JobLink::feed_release() {
  if (!release_state_.begin_next()) return;
  name_timer_.cancel();
  agent_.feed(to_agent(release()));
}

void JobLink::handle(member_action::ExtendWorkerLease&& event) {
  extend_lease(event.until);
}

void JobLink::extend_lease(rendezvous::Time until) {
  answered_ = rendezvous::Time(time_since_boot());
  lease_until_ = until;
  agent_.set_deadline(until.time_since_epoch());
}

void JobLink::handle(member_action::StopWorkers&& event) {
  agent_event::StopOrdered order = to_agent(event, unanswered_s());
  const bool is_worker_failure = event.reason == member_action::StopWorkers::Reason::kWorkerFailure;
  if (!order.unanswered_s && !is_worker_failure) publish_notice(NodeNotice::Kind::kRoundOver, order.why);
  agent_.feed(std::move(order));
}

void JobLink::handle(rendezvous::StoreAnswer&& event) {
  agent_.answer_worker(event.rank - release().rank_offset, event.reply);
}

void JobLink::handle(NodeNotice&& notice) {
  // The handler of StopWorkers publishes the end of a round, so this notice about the same end is dropped.
  if (notice.kind == NodeNotice::Kind::kRoundOver) return;
  if (notice.kind == NodeNotice::Kind::kReleased) {
    if (closes_meet_port_) shell_.close_meet_port();
    store_clients_of_port_.expect();  // other nodes may start their workers earlier than this node and connect to the store
  }
  notice.text = from_peer(notice.text);
  notice.failed_host = from_peer(notice.failed_host);
  agent_.publish(NodesChanged{std::move(notice), realtime_ns()});
}

// Handles a query to the store of ddptrain's workers. A new round starts with an empty store. The workers of the old round
// have ended, so the waiting requests of the old round are dropped.
void JobLink::handle(rendezvous::node_action::ServeStore&& event) {
  if (event.query.round != store_round_) {
    store_.clear();
    store_clients_.clear();
    store_round_ = event.query.round;
  }
  store_clients_[event.query.rank] = event.link;
  store_.handle(event.query.rank, event.query.request);
}

void JobLink::handle(rendezvous::node_action::Finish&& event) {
  agent_.feed(agent_event::JobEnded{event.exit_code, from_peer(event.why)});
}

void JobLink::publish_notice(NodeNotice::Kind kind, std::string text) {
  agent_.publish(NodesChanged{NodeNotice{.kind = kind, .text = std::move(text)}, realtime_ns()});
}

// ---- the round's master ----

// Returns the master's address as this node should use it. In a job with static rendezvous the first coordinator may have a
// different address on each node, because of a NAT or a tunnel. The address that the user typed on this node works here, so it
// replaces the address in the release. This applies only to the first coordinator's master. The port of that master is the
// coordinator's listening port or the typed port. The master of a later coordinator has a different port.
rendezvous::Address JobLink::named_master(const rendezvous::Release& release) const {
  const RendezvousPlan& meeting = plan_.rendezvous;
  const rendezvous::Address& master = release.master;
  const bool may_be_typed = plan_.kind != Plan::Kind::kTrain && meeting.backend == RendezvousPlan::Backend::kStatic &&
                            !meeting.host.empty() && meeting.port != 0 && release.group_rank != 0;
  const bool is_first = master.port == release.coordinator.address.port || master.port == meeting.port;
  return may_be_typed && is_first ? rendezvous::Address{meeting.host, static_cast<std::uint16_t>(meeting.port)} : master;
}

// Returns the master's address for the workers of this node. A loopback name would mean "this node" on every node. It is
// therefore replaced by the address at which this node has reached the coordinator.
rendezvous::Address JobLink::master() const {
  const rendezvous::Address named = named_master(release());
  const std::string& leader = shell_.leader_address();
  if (release().group_rank == 0 || leader.empty() || is_loopback_number(leader)) return named;
  const auto name = is_loopback_name_.find(named.host);
  const bool names_this_node = is_loopback_number(named.host) || (name != is_loopback_name_.end() && name->second);
  return names_this_node ? rendezvous::Address{leader, release().master.port} : named;
}

std::optional<HeldPort> JobLink::hold_master_port() {
  if (release().group_rank != 0) return std::nullopt;
  if (listens_for_store()) return HeldPort::own(release().master.port);
  if (next_port_ && next_port_->port() == release().master.port) return std::exchange(next_port_, std::nullopt);
  return HeldPort::exactly(release().master.port);
}

}  // namespace ddprun
