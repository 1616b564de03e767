// Implementation of job_link.hpp: one function per message.
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
#include "launcher/machine/own_address.hpp"
#include "launcher/translation/translation.hpp"
#include "launcher/verdict/job_judge.hpp"

namespace ddprun {
namespace {

using rendezvous::NodeNotice;
namespace member_event = rendezvous::member_event;
namespace member_action = rendezvous::member_action;

// Maximum time for which a round waits for the resolver to find out whether its master's name means a loopback address here.
constexpr std::chrono::seconds kMostOfTheResolver{2};

// True for events that AgentState can handle only after it knows the preceding round.
bool concerns_workers(const rendezvous::ShellEvent& event) {
  using rendezvous::CannotJoin, rendezvous::NobodyThere, rendezvous::EntrustFarewell;
  return std::visit<bool>(
      Overloaded{IgnoredAs<std::false_type, member_action::ExtendGrant, member_action::Say, member_action::AnswerStore,
                           member_action::BeAsked, member_action::HearAnswer, rendezvous::node_action::ServeStore>{},
                 IgnoredAs<std::true_type, CannotJoin, NobodyThere, EntrustFarewell, member_action::StartWorkers,
                           member_action::StopWorkers, member_action::DismissHeld, member_action::StopAndSave,
                           member_action::StopAt, rendezvous::node_action::Finish>{}},
      event);
}

std::string to_text(const rendezvous::Address& address) {
  const bool bare_ipv6 = address.host.find(':') != std::string::npos;
  return (bare_ipv6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

// The sockaddr of a numeric address; returns 0 if `host` is not numeric.
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

// A warning if nodes meet at a loopback address, which other machines cannot reach. Empty otherwise.
std::string line_about_loopback(const std::string& typed, const std::string& listens) {
  const bool is_typed = typed == "localhost" || is_loopback_number(typed);
  if (!is_typed && !is_loopback_number(listens)) return "";
  return "nodes on other machines cannot reach this node: " + (is_typed ? typed : listens) +
         " is a loopback address. Give a network address in --master-addr or --rdzv-endpoint, unless all nodes run on this "
         "machine";
}

}  // namespace

JobLink::JobLink(boost::asio::io_context& io, NetworkStart start, const Plan& plan, Hooks hooks)
    : plan_(plan),
      hooks_(std::move(hooks)),
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
          [this](const std::string& line) { say(NodeNotice::Kind::kRefused, line); }) {}

// Checkpoints are reported only to the coordinator's node, so that node knows best how far the run has progressed.
rendezvous::NodeShellSettings JobLink::complete(rendezvous::NodeShellSettings settings) {
  settings.take_store_client = [this](int fd, std::string_view bytes) { return store_clients_of_port_.take(fd, bytes); };
  settings.node.member.master_port = static_cast<std::uint16_t>(next_port_->port());
  // Added to the shutdown timeout of the workers, since an agent takes up to a minute to detect that even SIGKILL does not end
  // one (slow_stop.hpp).
  constexpr std::chrono::seconds kBesideTheStop{75};
  settings.node.coordinator.ready_timeout =
      std::max(settings.node.coordinator.ready_timeout, plan_.shutdown_timeout + kBesideTheStop);
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
    say(NodeNotice::Kind::kLeading, how_to_join());
    if (const std::string line = line_about_loopback(plan_.rendezvous.host, shell_.meeting_point().host); !line.empty())
      say(NodeNotice::Kind::kWaiting, line);
  } else {
    const RendezvousPlan& meeting = plan_.rendezvous;
    const std::string host = meeting.host.empty() ? "127.0.0.1" : meeting.host;
    say(NodeNotice::Kind::kLooking,
        "looking for the job '" + plan_.run_id + "' at " + to_text({host, static_cast<std::uint16_t>(meeting.port)}));
  }
  shell_.begin();
}

std::string JobLink::how_to_join() const {
  const RendezvousPlan& meeting = plan_.rendezvous;
  const std::string nodes = meeting.min_nodes == meeting.max_nodes
                                ? std::to_string(meeting.max_nodes)
                                : std::to_string(meeting.min_nodes) + " to " + std::to_string(meeting.max_nodes);
  std::string text = "this node coordinates the job '" + plan_.run_id + "' of " + nodes +
                     " nodes. On each of the others run the same command, or:\n    ddprun join " +
                     to_text(shell_.meeting_point());
  if (token_file_.empty()) return text + "    (with the same DDPRUN_TOKEN)";
  return text + " --token-file FILE    (FILE: a copy of " + token_file_ + ")";
}

// ---- from the workers here ----

void JobLink::carry_out(const agent_action::ReportFailure& action) {
  shell_.local(to_member(action));
}

void JobLink::carry_out(const agent_action::ReportRoundOver& action) {
  hooks_.set_deadline(std::nullopt);
  if (!next_port_) next_port_ = HeldPort::any(plan_.rendezvous.port_range);
  shell_.local(to_member(action, static_cast<std::uint16_t>(next_port_->port())));
}

void JobLink::carry_out(const agent_action::ReportSignal& action) {
  shell_.local(to_member(action));
}

void JobLink::carry_out(const agent_action::ReportSteps& action) {
  shell_.local(to_member(action));
}

void JobLink::ask_store(int local_rank, const channel::StoreRequest& request) {
  shell_.local(member_event::AskStore{release().rank_offset + local_rank, request});
}

// ---- from the nodes ----

void JobLink::handle(rendezvous::CannotJoin&& event) {
  hooks_.feed(agent_event::JobEnded{event.exit_code, from_peer(event.why)});
}

void JobLink::handle(rendezvous::NobodyThere&& event) {
  const auto most = std::chrono::duration_cast<std::chrono::seconds>(plan_.rendezvous.join_timeout);
  std::string why = from_peer(event.why);
  if (!why.ends_with('?') && !why.ends_with('.')) why += ".";
  say(NodeNotice::Kind::kWaiting,
      why + " Still trying, for " + std::to_string(most.count()) + " s in all (--rdzv-conf join_timeout)");
}

void JobLink::handle(rendezvous::EntrustFarewell&& event) {
  guardian::LastWord word;
  const std::string record = event.record.string();
  if (event.to.port != 0 && event.text.size() <= word.text.size() && record.size() < word.record.size()) {
    word.to_size = static_cast<std::uint32_t>(to_sockaddr(event.to.host, event.to.port, word.to));
    word.size = static_cast<std::uint32_t>(event.text.size());
    std::copy(event.text.begin(), event.text.end(), word.text.begin());
    std::copy(record.begin(), record.end(), word.record.begin());
  }
  hooks_.entrust(word);
}

void JobLink::handle(member_action::StartWorkers&& event) {
  round_.announce(std::move(event.release));
  resumed_from_ = newest_checkpoint_;
  granted(event.until);
  look_up_master();
}

// Only the resolver knows whether the name means "this node" on every node (master_address). Lease messages continue in the
// meantime.
void JobLink::look_up_master() {
  const std::string named = named_master(round_.newest()).host;
  const std::string& leader = shell_.leader_address();
  const bool of_no_use = round_.newest().group_rank == 0 || leader.empty() || is_loopback_number(leader);
  if (of_no_use || is_number(named) || is_loopback_name_.contains(named)) return feed_release();
  names_.ask(named, [this, named](const NameAnswer& answer) {
    if (!answer.addresses.empty()) is_loopback_name_[named] = is_loopback_number(answer.addresses.front());
    if (named == named_master(round_.newest()).host) feed_release();
  });
  name_timer_.expires_after(kMostOfTheResolver);
  name_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) feed_release();
  });
}

void JobLink::feed_release() {
  if (!round_.begin_next()) return;
  name_timer_.cancel();
  hooks_.feed(to_agent(release()));
}

void JobLink::handle(member_action::ExtendGrant&& event) {
  granted(event.until);
}

void JobLink::granted(rendezvous::Time until) {
  answered_ = rendezvous::Time(time_since_boot());
  granted_until_ = until;
  hooks_.set_deadline(until.time_since_epoch());
}

void JobLink::handle(member_action::StopWorkers&& event) {
  agent_event::StopOrdered order = to_agent(event, unanswered_s());
  const bool of_a_worker = event.reason == member_action::StopWorkers::Reason::kWorkerFailure;
  if (!order.unanswered_s && !of_a_worker) say(NodeNotice::Kind::kRoundOver, order.why);
  hooks_.feed(std::move(order));
}

void JobLink::handle(member_action::DismissHeld&& event) {
  hooks_.feed(to_agent(event));
}

void JobLink::handle(member_action::StopAndSave&& event) {
  hooks_.feed(to_agent(event));
}

void JobLink::handle(member_action::StopAt&& event) {
  hooks_.feed(to_agent(event));
}

void JobLink::handle(member_action::AnswerStore&& event) {
  hooks_.answer_worker(event.rank - release().rank_offset, event.reply);
}

void JobLink::handle(member_action::Say&& event) {
  // The handler of StopWorkers reports it.
  if (event.notice.kind == NodeNotice::Kind::kRoundOver) return;
  if (event.notice.kind == NodeNotice::Kind::kReleased) {
    if (closes_meet_port_) shell_.close_meet_port();
    store_clients_of_port_.expect();  // other nodes may start their workers before this node does
  }
  event.notice.text = from_peer(event.notice.text);
  hooks_.publish(NodesChanged{std::move(event.notice), realtime_ns()});
}

// A new round starts without keys. Waiters of the old round have ended.
void JobLink::handle(rendezvous::node_action::ServeStore&& event) {
  if (event.ask.round != store_round_) {
    store_.clear();
    store_clients_.clear();
    store_round_ = event.ask.round;
  }
  store_clients_[event.ask.rank] = event.link;
  store_.handle(event.ask.rank, event.ask.request);
}

void JobLink::handle(rendezvous::node_action::Finish&& event) {
  hooks_.feed(agent_event::JobEnded{event.exit_code, from_peer(event.why)});
}

void JobLink::say(NodeNotice::Kind kind, std::string text) {
  hooks_.publish(NodesChanged{NodeNotice{.kind = kind, .text = std::move(text)}, realtime_ns()});
}

// ---- the round's master ----

// In a static job, each node may know the first coordinator by a different address, because of a NAT or a tunnel. So this node
// uses the address that was typed here. This applies to a master at the coordinator's listening port, or at the port typed
// here. The master of a later coordinator has another port.
rendezvous::Address JobLink::named_master(const rendezvous::Release& release) const {
  const RendezvousPlan& meeting = plan_.rendezvous;
  const rendezvous::Address& master = release.master;
  const bool may_be_typed = plan_.kind != Plan::Kind::kTrain && meeting.backend == RendezvousPlan::Backend::kStatic &&
                            !meeting.host.empty() && meeting.port != 0 && release.group_rank != 0;
  const bool is_first = master.port == release.coordinator.address.port || master.port == meeting.port;
  return may_be_typed && is_first ? rendezvous::Address{meeting.host, static_cast<std::uint16_t>(meeting.port)} : master;
}

// A loopback name means "this node" on every node. It is replaced by the address at which this node reached the coordinator.
rendezvous::Address JobLink::master() const {
  const rendezvous::Address named = named_master(release());
  const std::string& leader = shell_.leader_address();
  if (release().group_rank == 0 || leader.empty() || is_loopback_number(leader)) return named;
  const auto name = is_loopback_name_.find(named.host);
  const bool means_itself = is_loopback_number(named.host) || (name != is_loopback_name_.end() && name->second);
  return means_itself ? rendezvous::Address{leader, release().master.port} : named;
}

std::optional<HeldPort> JobLink::hold_master_port() {
  if (release().group_rank != 0) return std::nullopt;
  if (listens_for_store()) return HeldPort::own(release().master.port);
  if (next_port_ && next_port_->port() == release().master.port) return std::exchange(next_port_, std::nullopt);
  return HeldPort::exactly(release().master.port);
}

}  // namespace ddprun
