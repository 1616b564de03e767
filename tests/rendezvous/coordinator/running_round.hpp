// A test fixture: a coordinator with a running round. Tests send messages to the coordinator and check its replies.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/coordinator/coordinator.hpp"

namespace ddprun::rendezvous {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr LinkId kOther = 2;
inline constexpr LinkId kThird = 3;
inline const std::string kLastFailure = "nothing is to be tried again";

// A job whose first round has two nodes. Tests may add further nodes.
class RunningRound : public testing::Test {
 protected:
  explicit RunningRound(std::int32_t min_nodes = 1, Arbiter arbiter = Arbiter::kNone, std::int32_t max_nodes = 3)
      : arbiter_(arbiter), coordinator_(settings(min_nodes, arbiter, max_nodes), Authority{}, {time_, 0}) {
    join(kSelfLink, 1);
    join(kOther, 2);
    time_ += seconds(3);  // ends the wait for further nodes, after which the round starts
    tick();
    for (int turn = 0; turn < 2; ++turn) {
      for (const LinkId link : {kSelfLink, kOther}) ping(link);
    }
  }

  static constexpr std::uint64_t kArbiterName = 5;
  static CoordinatorSettings settings(std::int32_t min_nodes, Arbiter arbiter = Arbiter::kNone, std::int32_t max_nodes = 3) {
    CoordinatorSettings settings;
    if (arbiter == Arbiter::kEtcd) settings.arbiter = kArbiterName;
    settings.self = {1};
    settings.min_nodes = min_nodes;
    settings.max_nodes = max_nodes;
    settings.judge = [](const FailureReport& failure, const Budget& before) {
      Verdict verdict;
      if (failure.message == kLastFailure) {
        const bool bad_data = failure.failed.cause == Cause::kUsage;
        return Verdict{.exit_code = 2,
                       .others_save = bad_data || failure.failed.cause == Cause::kLateUsage,
                       .preempted_once_saved = !bad_data,
                       .why = "0 of 0 restarts are left"};
      }
      verdict.restart = true;
      verdict.after = before;
      ++verdict.after.history.used;
      ++verdict.after.restart_count;
      return verdict;
    };
    return settings;
  }

  void on(const CoordinatorEvent& event) {
    std::vector<std::pair<LinkId, Ending>> proposed;
    for (CoordinatorAction& action : coordinator_.on(event, {time_, 0})) {
      if (const auto* notice = std::get_if<NodeNotice>(&action)) notices_ += notice->text + "\n";
      if (const auto* down = std::get_if<coordinator_action::StepDown>(&action)) stepped_down_ = *down;
      if (const auto* close = std::get_if<node_action::CloseLink>(&action)) closed_.insert(close->link);
      const auto* send = std::get_if<node_action::ToDialler>(&action);
      if (send == nullptr) continue;
      if (const auto* over = std::get_if<RoundOver>(&send->message)) over_[send->link] = *over;
      if (const auto* release = std::get_if<Release>(&send->message)) released_[send->link] = *release;
      if (const auto* pong = std::get_if<Pong>(&send->message)) {
        stamps_[send->link] = pong->stamp;
        grants_[send->link] = pong->grant_ns;
      }
      if (const auto* propose_end = std::get_if<ProposeEnd>(&send->message))
        proposed.emplace_back(send->link, propose_end->ending);
      if (const auto* over = std::get_if<JobOver>(&send->message)) {
        job_over_ = *over;
        job_over_links_.insert(send->link);
      }
      if (const auto* handed = std::get_if<TransferLeadership>(&send->message)) transfers_[send->link] = *handed;
      if (const auto* waiting = std::get_if<Waiting>(&send->message)) waiting_texts_[send->link].push_back(waiting->text);
      if (std::holds_alternative<MayLeave>(send->message)) may_leave_links_.insert(send->link);
      if (const auto* save = std::get_if<StopAndSave>(&send->message)) saves_[send->link] = *save;
      if (const auto* query = std::get_if<NodeQuery>(&send->message)) queries_.emplace_back(send->link, *query);
      if (const auto* answer = std::get_if<JobAnswer>(&send->message)) answered_.emplace_back(send->link, *answer);
    }
    for (const auto& [link, ending] : proposed) {
      endings_[link] = ending;
      if (!silent_.contains(link)) send_from(link, EndAccepted{ending.origin});
    }
  }
  void send_from(LinkId link, FromMember message) { on(node_event::FromDialler{link, std::move(message)}); }
  void tick() { on(node_event::Tick{}); }
  void join(LinkId link, std::uint8_t node, Workers workers = Workers::kNone, std::optional<RoundId> of = {}) {
    send_hello(link, node, workers, of);
    ping(link);  // each node answers its Welcome with a ping
  }
  void send_hello(LinkId link, std::uint8_t node, Workers workers = Workers::kNone, std::optional<RoundId> of = {}) {
    on(node_event::LinkOpened{link});
    Hello hello;
    hello.node = {node};
    hello.incarnation = 1;
    hello.attempt = ++hellos_;
    hello.workers = workers;
    if (workers != Workers::kNone) hello.workers_round = of.value_or(round());
    if (arbiter_ == Arbiter::kEtcd) hello.arbiter = kArbiterName;
    hello.hostname = "host" + std::to_string(node);
    hello.listens = {"10.0.0." + std::to_string(node), 29400};
    send_from(link, hello);
  }
  void ping(LinkId link) {
    send_from(link, Ping{.stamp = stamp_of(time_), .echo = stamps_[link], .realtime_ns = 0, .installed = released_[link].id});
  }
  // Advances the time. During that time, the nodes of `links` send pings.
  void wait(seconds length, std::initializer_list<LinkId> links) {
    for (const Time end = time_ + length; time_ < end; time_ += seconds(1)) {
      for (const LinkId link : links) ping(link);
      tick();
    }
  }
  RoundId round() const { return released_.at(kSelfLink).id; }
  FailureReport failure(bool others_stay) const {
    FailureReport report;
    report.round = round();
    report.message = "rank 1 failed";
    report.others_stay = others_stay;
    return report;
  }

  Time time_{seconds(1000)};
  Arbiter arbiter_;
  Coordinator coordinator_;
  std::map<LinkId, RoundOver> over_;
  std::map<LinkId, Release> released_;
  std::map<LinkId, std::int64_t> stamps_;
  std::map<LinkId, std::int64_t> grants_;
  std::map<LinkId, StopAndSave> saves_;
  std::map<LinkId, TransferLeadership> transfers_;
  std::map<LinkId, std::vector<std::string>> waiting_texts_;
  std::vector<std::pair<LinkId, NodeQuery>> queries_;
  std::vector<std::pair<LinkId, JobAnswer>> answered_;
  std::map<LinkId, Ending> endings_;
  std::set<LinkId> silent_;  // links of nodes that do not confirm the proposed end of the job
  std::set<LinkId> closed_;
  std::set<LinkId> may_leave_links_;
  std::optional<coordinator_action::StepDown> stepped_down_;
  std::optional<JobOver> job_over_;
  std::set<LinkId> job_over_links_;  // the links over which JobOver was sent
  std::string notices_;
  std::uint64_t hellos_ = 0;
};

}  // namespace ddprun::rendezvous
