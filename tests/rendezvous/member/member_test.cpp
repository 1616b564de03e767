// Tests how a member reacts to messages of a current or former coordinator. In a correct network, these rules of member.hpp
// have no effect, so the simulator cannot test them.
#include "rendezvous/member/member.hpp"

#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using std::chrono::seconds;

template <class Action>
const Action* find(const std::vector<MemberAction>& actions) {
  for (const MemberAction& action : actions) {
    if (const auto* found = std::get_if<Action>(&action)) return found;
  }
  return nullptr;
}

template <class Message>
const Message* sent(const std::vector<MemberAction>& actions) {
  for (const MemberAction& action : actions) {
    const auto* send = std::get_if<node_action::ToListener>(&action);
    if (send == nullptr) continue;
    if (const auto* message = std::get_if<Message>(&send->message)) return message;
  }
  return nullptr;
}

// A member that has dialed the only address in its list.
class OneMember : public testing::Test {
 protected:
  OneMember() : member_(settings(), std::nullopt, now()) {
    link_ = find<node_action::Dial>(member_.on(node_event::Tick{}, now()))->link;
    feed(node_event::LinkOpened{link_, "10.0.0.2"});
  }

  static MemberSettings settings() {
    MemberSettings settings;
    settings.node = {2};
    settings.listens = {"10.0.0.2", 7};
    settings.endpoints = {{"10.0.0.1", 29400}};
    return settings;
  }
  Now now() const { return {time_, 0}; }
  std::vector<MemberAction> feed(const MemberEvent& event) { return member_.on(event, now()); }
  std::vector<MemberAction> receive(FromCoordinator message) {
    return feed(node_event::FromListener{link_, std::move(message)});
  }
  Release release(std::uint64_t term, std::int64_t round) const {
    Release release;
    release.id = {term, round};
    release.born = term;
    release.group_rank = 1;
    release.nodes = 2;
    release.world_size = 2;
    return release;
  }
  Pong answer(Time requested, std::chrono::nanoseconds grant) const {
    return {.echo = stamp_of(requested),
            .stamp = stamp_of(requested),
            .realtime_ns = 0,
            .grant_ns = grant.count(),
            .committed = {}};
  }

  Time time_{seconds(1000)};
  Member member_;
  LinkId link_ = 0;
};

TEST_F(OneMember, StartsWorkersWithAReleaseAndALease) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  EXPECT_EQ(find<member_action::StartWorkers>(receive(release(3, 0))), nullptr);
  const auto actions = receive(answer(time_, seconds(4)));
  const auto* start = find<member_action::StartWorkers>(actions);
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->release.id, (RoundId{3, 0}));
  EXPECT_EQ(start->until, time_ + seconds(4));
}

TEST_F(OneMember, LeaseStartsAtThePingNotAtTheAnswer) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  const Time requested = time_;
  time_ += seconds(2);
  const auto actions = receive(answer(requested, seconds(4)));
  const auto* start = find<member_action::StartWorkers>(actions);
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->until, requested + seconds(4));
}

TEST_F(OneMember, StartsNothingWithAnExpiringLease) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  const Time requested = time_;
  time_ += seconds(3);
  EXPECT_EQ(find<member_action::StartWorkers>(receive(answer(requested, seconds(4)))), nullptr);
  EXPECT_NE(find<member_action::StartWorkers>(receive(answer(time_ - seconds(1), seconds(4)))), nullptr);
}

// The member reports the host name of a lost coordinator, unless that coordinator left in an orderly way. The next coordinator
// writes this name to the history of nodes.
TEST_F(OneMember, NamesTheHostOfALostCoordinator) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000, .hostname = "gpu1"});
  receive(release(3, 0));
  const auto lost = feed(node_event::LinkClosed{link_});
  ASSERT_NE(find<NodeNotice>(lost), nullptr);
  EXPECT_EQ(find<NodeNotice>(lost)->kind, NodeNotice::Kind::kSearching);
  EXPECT_EQ(find<NodeNotice>(lost)->failed_host, "gpu1");
}

TEST_F(OneMember, ACoordinatorThatLeavesHasNotFailed) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000, .hostname = "gpu1"});
  receive(release(3, 0));
  const auto left = receive(TransferLeadership{.node = {1}, .to = {.group_rank = 1, .node = {2}, .address = {}}, .state = {}});
  ASSERT_NE(find<NodeNotice>(left), nullptr);
  EXPECT_EQ(find<NodeNotice>(left)->failed_host, "");
}

// A coordinator that has no earlier rounds grants no time before the nodes have answered its Welcome. So a member must answer
// immediately.
TEST_F(OneMember, AnswersAWelcomeImmediately) {
  const auto welcomed = receive(Welcome{.term = 1, .coordinator = {1}, .lease_ms = 5000, .stamp = 77});
  ASSERT_NE(sent<Ping>(welcomed), nullptr);
  EXPECT_EQ(sent<Ping>(welcomed)->echo, 77);
  // After the answer to this ping, the node must not send another ping immediately.
  EXPECT_EQ(sent<Ping>(receive(answer(time_, std::chrono::nanoseconds{0}))), nullptr);
}

TEST_F(OneMember, PingsAgainWhenItsRecordIsWritten) {
  receive(Welcome{.term = 1, .coordinator = {1}, .lease_ms = 5000});
  receive(answer(time_, std::chrono::nanoseconds{0}));
  EXPECT_EQ(find<member_action::StartWorkers>(receive(release(1, 1))), nullptr);
  const auto result = feed(member_event::RecordWritten{});
  ASSERT_NE(sent<Ping>(result), nullptr);
  EXPECT_EQ(sent<Ping>(result)->installed, (RoundId{1, 1}));
  EXPECT_NE(find<member_action::StartWorkers>(receive(answer(time_, seconds{3}))), nullptr);
  EXPECT_EQ(sent<Ping>(feed(member_event::RecordWritten{})), nullptr);
}

// Until a majority has installed the new round, decisions also need a majority of the previous round. If the previous round is
// small, the loss of one node can mean the loss of the majority. So the member pings immediately and does not wait for the
// ping interval.
TEST_F(OneMember, PingsImmediatelyAfterASmallRound) {
  receive(Welcome{.term = 1, .coordinator = {1}, .lease_ms = 5000});
  receive(release(1, 1));
  receive(answer(time_, seconds(4)));
  const auto after_round_of = [&](std::int32_t nodes, std::int64_t round) {
    Release next = release(1, round);
    next.previous = Config{.id = {1, round - 1}, .born = 1, .nodes = nodes, .rank = 1};
    feed(member_event::WorkersEnded{});
    receive(std::move(next));
    receive(answer(time_, seconds(4)));
    const auto result = feed(member_event::RecordWritten{});
    const Ping* const ping = sent<Ping>(result);
    return ping != nullptr && ping->installed == RoundId{1, round};
  };
  EXPECT_TRUE(after_round_of(kFewNodes, 2));
  EXPECT_FALSE(after_round_of(kFewNodes + 1, 3));
  Pong committed = answer(time_, seconds(4));
  committed.committed = {1, 3};
  receive(committed);
  EXPECT_EQ(sent<Ping>(feed(member_event::RecordWritten{})), nullptr);
}

// The coordinator increased its term after the Welcome, because another node had promised a later term. This node must promise
// the new term too. Regression: a node recorded a round of a term that it had not promised, and was refused after a restart.
TEST_F(OneMember, PromisesTheTermOfItsRound) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  const auto* remembered = find<member_action::Remember>(receive(release(7, 0)));
  EXPECT_NE(remembered, nullptr);
  EXPECT_EQ(member_.state().promised_term, 7u);
}

// A node receives a signal after its workers have finished, and stays. Then a new round starts. Regression: the node trained in
// the new round and ignored the signal.
TEST_F(OneMember, RepeatsItsStopRequestInANewRound) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  feed(member_event::WorkersDone{});
  EXPECT_EQ(find<node_action::Finish>(feed(StopRequest{15})), nullptr);
  const auto again = receive(release(3, 1));
  ASSERT_NE(sent<StopRequest>(again), nullptr);
  EXPECT_EQ(sent<StopRequest>(again)->signal, 15);
}

TEST_F(OneMember, LeavesWhenItsFinishedRoundIsReplaced) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  feed(member_event::WorkersDone{});
  Release without = release(3, 1);
  without.group_rank = -1;
  receive(without);
  EXPECT_NE(find<node_action::Finish>(feed(StopRequest{15})), nullptr);
}

TEST_F(OneMember, IgnoresAnOldRelease) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 4));
  EXPECT_EQ(find<member_action::Remember>(receive(release(3, 4))), nullptr);
  EXPECT_EQ(find<member_action::Remember>(receive(release(3, 3))), nullptr);
  EXPECT_EQ(find<member_action::Remember>(receive(release(2, 9))), nullptr);
  EXPECT_EQ(member_.state().current.id, (RoundId{3, 4}));
}

// The node has promised a later term than the coordinator to which it is redirected. The node must follow the redirect anyway,
// because that coordinator may need this node for a majority, and must receive the later term from this node.
TEST_F(OneMember, FollowsARedirectAfterPromisingALaterTerm) {
  receive(VoteRequest{.term = 6, .candidate = {1}, .stamp = 1});
  const auto actions = receive(Redirect{.term = 5, .coordinator = {"10.0.0.9", 7}});
  const auto* dial = find<node_action::Dial>(actions);
  ASSERT_NE(dial, nullptr);
  EXPECT_EQ(dial->address.host, "10.0.0.9");
}

TEST_F(OneMember, FollowsNoCoordinatorOfAnEarlierTerm) {
  receive(VoteRequest{.term = 6, .candidate = {1}, .stamp = 1});
  receive(Welcome{.term = 5, .coordinator = {1}, .lease_ms = 5000});
  EXPECT_TRUE(member_.searching());
}

TEST_F(OneMember, VotesOncePerTerm) {
  const auto first = receive(VoteRequest{.term = 6, .candidate = {1}, .stamp = 1});
  ASSERT_NE(sent<Vote>(first), nullptr);
  EXPECT_TRUE(sent<Vote>(first)->granted());
  const auto second = receive(VoteRequest{.term = 6, .candidate = {3}, .stamp = 1});
  ASSERT_NE(sent<Vote>(second), nullptr);
  EXPECT_FALSE(sent<Vote>(second)->granted());
}

TEST_F(OneMember, HoldsItsWorkersAndIsReadyForTheNextRound) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  const auto over = receive(RoundOver{.round = {3, 0}, .why = "b was lost", .hold = true});
  ASSERT_NE(find<member_action::StopWorkers>(over), nullptr);
  EXPECT_TRUE(find<member_action::StopWorkers>(over)->hold);
  EXPECT_NE(sent<Ready>(feed(member_event::WorkersEnded{})), nullptr);
  time_ += seconds(60);  // by now the lease of its workers has expired
  EXPECT_EQ(find<member_action::StopWorkers>(feed(node_event::LinkClosed{link_})), nullptr);
}

TEST_F(OneMember, DismissesHeldWorkersWhenTheRoundIsNotHeld) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  feed(FailureReport{});
  feed(member_event::WorkersEnded{});
  const RoundOver over{.round = {3, 0}, .reason = OverReason::kWorkerFailure, .why = "states differ"};
  EXPECT_NE(find<member_action::DismissHeld>(receive(over)), nullptr);
  RoundOver holding = over;
  holding.hold = true;
  EXPECT_EQ(find<member_action::DismissHeld>(receive(holding)), nullptr);
}

TEST_F(OneMember, RepeatsDoneAndNotReady) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  EXPECT_NE(sent<Done>(feed(member_event::WorkersDone{})), nullptr);
  const auto lost = feed(node_event::LinkClosed{link_});
  ASSERT_NE(find<node_action::Dial>(lost), nullptr);
  link_ = find<node_action::Dial>(lost)->link;
  feed(node_event::LinkOpened{link_, "10.0.0.2"});
  const auto back = receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  ASSERT_NE(sent<Done>(back), nullptr);
  EXPECT_EQ(sent<Done>(back)->round, (RoundId{3, 0}));
  EXPECT_EQ(sent<Ready>(back), nullptr);
}

// If a round starts only to save held state, the request to save may arrive before the workers have started.
TEST_F(OneMember, StartsWorkersBeforeASave) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  const auto early = receive(StopAndSave{.round = {3, 0}, .signal = 15});
  EXPECT_EQ(find<StopAndSave>(early), nullptr);
  EXPECT_EQ(sent<Stopped>(early), nullptr);
  const auto actions = receive(answer(time_, seconds(4)));
  EXPECT_NE(find<member_action::StartWorkers>(actions), nullptr);
  ASSERT_NE(find<StopAndSave>(actions), nullptr);
  EXPECT_EQ(find<StopAndSave>(actions)->signal, 15);
}

// The workers keep their state for a round that does not start. The workers run again to save the state, if their lease allows
// it.
TEST_F(OneMember, SavesHeldStateDuringItsLease) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  receive(RoundOver{.round = {3, 0}, .why = "rank 0 failed", .hold = true});
  feed(member_event::WorkersEnded{});
  const auto actions = receive(StopAndSave{.round = {3, 0}, .held = true});
  ASSERT_NE(find<StopAndSave>(actions), nullptr);
  EXPECT_TRUE(find<StopAndSave>(actions)->held);
  ASSERT_NE(find<member_action::ExtendWorkerLease>(actions), nullptr);
  EXPECT_EQ(find<member_action::ExtendWorkerLease>(actions)->until, time_ + seconds(4));
  const auto saved = feed(member_event::WorkersEnded{.saved = true});
  ASSERT_NE(sent<Stopped>(saved), nullptr);
  EXPECT_TRUE(sent<Stopped>(saved)->saved);
  EXPECT_EQ(find<node_action::Finish>(saved), nullptr);
  const auto end = receive(JobOver{.round = {3, 0}, .exit_code = 85, .why = "saved"});
  ASSERT_NE(find<node_action::Finish>(end), nullptr);
  EXPECT_EQ(find<node_action::Finish>(end)->exit_code, 85);
}

TEST_F(OneMember, SavesNothingWithoutALease) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(1)));
  receive(RoundOver{.round = {3, 0}, .why = "rank 0 failed", .hold = true});
  feed(member_event::WorkersEnded{});
  time_ += seconds(2);
  const auto actions = receive(StopAndSave{.round = {3, 0}, .held = true});
  EXPECT_EQ(find<StopAndSave>(actions), nullptr);
  ASSERT_NE(sent<Stopped>(actions), nullptr);
  EXPECT_FALSE(sent<Stopped>(actions)->saved);
}

// The workers finish after a signal. The node then counts as finished and must not leave because of the signal.
TEST_F(OneMember, StaysIfItFinishesAfterASignal) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  feed(StopRequest{15});
  const auto actions = feed(member_event::WorkersDone{});
  EXPECT_NE(sent<Done>(actions), nullptr);
  EXPECT_EQ(sent<Leave>(actions), nullptr);
  const auto end = receive(JobOver{.round = {3, 0}, .exit_code = 0, .why = "done"});
  ASSERT_NE(find<node_action::Finish>(end), nullptr);
  EXPECT_EQ(find<node_action::Finish>(end)->exit_code, 0);
}

// After a signal, the round ends for another reason. The coordinator may still request a save of the held state, so the node
// waits for MayLeave.
TEST_F(OneMember, WaitsForMayLeaveAfterASignal) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  feed(StopRequest{15});
  const auto over = receive(RoundOver{.round = {3, 0}, .why = "c was lost", .hold = true});
  ASSERT_NE(find<member_action::StopWorkers>(over), nullptr);
  EXPECT_TRUE(find<member_action::StopWorkers>(over)->hold);
  const auto held = feed(member_event::WorkersEnded{});
  EXPECT_EQ(sent<Leave>(held), nullptr);
  EXPECT_NE(sent<Ready>(held), nullptr);
  const auto allowed = receive(MayLeave{{3, 0}});
  EXPECT_NE(sent<Leave>(allowed), nullptr);
  ASSERT_NE(find<node_action::Finish>(allowed), nullptr);
  EXPECT_EQ(find<node_action::Finish>(allowed)->exit_code, 143);
}

TEST_F(OneMember, RequestsToLeaveBetweenRounds) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  receive(RoundOver{.round = {3, 0}, .why = "c was lost", .hold = true});
  feed(member_event::WorkersEnded{});
  const auto requested = feed(StopRequest{15});
  EXPECT_NE(sent<StopRequest>(requested), nullptr);
  EXPECT_EQ(sent<Leave>(requested), nullptr);
  const auto alone = feed(node_event::LinkClosed{link_});  // without a coordinator, MayLeave can never arrive
  ASSERT_NE(find<node_action::Finish>(alone), nullptr);
  EXPECT_EQ(find<node_action::Finish>(alone)->exit_code, 143);
}

// A scheduler that stops the job also sends the signal to nodes that have finished. A finished node must stay until the job
// ends.
TEST_F(OneMember, StaysIfItIsSignaledAfterFinishing) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  feed(member_event::WorkersDone{});
  const auto signalled = feed(StopRequest{15});
  EXPECT_EQ(find<node_action::Finish>(signalled), nullptr);
  EXPECT_EQ(sent<Leave>(signalled), nullptr);
  const auto end = receive(JobOver{.round = {3, 0}, .exit_code = 85, .why = "saved"});
  ASSERT_NE(find<node_action::Finish>(end), nullptr);
  EXPECT_EQ(find<node_action::Finish>(end)->exit_code, 85);
}

TEST_F(OneMember, LeavesAfterACoordinatedSave) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  const auto requested = feed(StopRequest{15, true});
  ASSERT_NE(sent<StopRequest>(requested), nullptr);
  EXPECT_TRUE(sent<StopRequest>(requested)->saves);
  EXPECT_NE(find<StopAndSave>(receive(StopAndSave{.round = {3, 0}, .signal = 15, .continues = true})), nullptr);
  const auto saved = feed(member_event::WorkersEnded{.saved = true});
  EXPECT_NE(sent<Stopped>(saved), nullptr);
  EXPECT_EQ(find<node_action::Finish>(saved), nullptr);
  const auto over = receive(MayLeave{{3, 0}});
  EXPECT_NE(sent<Leave>(over), nullptr);
  ASSERT_NE(find<node_action::Finish>(over), nullptr);
  EXPECT_EQ(find<node_action::Finish>(over)->exit_code, 85);
}

TEST_F(OneMember, IsReadyAfterTheSaveForALeavingNode) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  receive(StopAndSave{.round = {3, 0}, .signal = 15, .continues = true});
  EXPECT_NE(sent<Stopped>(feed(member_event::WorkersEnded{.saved = true})), nullptr);
  const auto over = receive(RoundOver{.round = {3, 0}, .why = "b is leaving"});
  EXPECT_NE(sent<Ready>(over), nullptr);
  EXPECT_EQ(find<node_action::Finish>(over), nullptr);
}

TEST_F(OneMember, ReportsTheNodesItsCoordinatorAwaits) {
  EXPECT_EQ(find<NodeNotice>(receive(Waiting{"waiting for host3"})), nullptr) << "no node leads it yet";
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  const auto actions = receive(Waiting{"waiting for host3"});
  const auto* result = find<NodeNotice>(actions);
  ASSERT_NE(result, nullptr);
  EXPECT_EQ(result->kind, NodeNotice::Kind::kWaiting);
  EXPECT_EQ(result->text, "waiting for host3");
}

// Another node may report the end of an older round. Examples are a node that led the job in the past, and a node that gave up
// alone at the job's first address. The report must not end a job that other nodes lead.
TEST_F(OneMember, IgnoresTheEndOfAnOlderRound) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 4));
  const auto lost = feed(node_event::LinkClosed{link_});
  ASSERT_NE(find<node_action::Dial>(lost), nullptr);
  link_ = find<node_action::Dial>(lost)->link;
  feed(node_event::LinkOpened{link_, "10.0.0.2"});
  const auto before = receive(JobOver{.round = {1, -1}, .exit_code = 80, .why = "no other node came"});
  EXPECT_EQ(find<node_action::Finish>(before), nullptr);
  EXPECT_NE(find<node_action::CloseLink>(before), nullptr);
  time_ += seconds(1);
  const auto again = feed(node_event::Tick{});
  ASSERT_NE(find<node_action::Dial>(again), nullptr);
  link_ = find<node_action::Dial>(again)->link;
  feed(node_event::LinkOpened{link_, "10.0.0.2"});
  const auto end = receive(JobOver{.round = {3, 4}, .exit_code = 0, .why = "done"});
  ASSERT_NE(find<node_action::Finish>(end), nullptr);
  EXPECT_EQ(find<node_action::Finish>(end)->exit_code, 0);
}

// All other nodes that could elect a coordinator have already ended. So this node must complete the proposed end alone.
TEST_F(OneMember, CompletesAProposedEndWithoutACoordinator) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 4));
  const auto proposed = receive(ProposeEnd{{.origin = {3, 4}, .exit_code = 7, .why = "the restarts are spent"}});
  ASSERT_NE(sent<EndAccepted>(proposed), nullptr);
  EXPECT_EQ(find<node_action::Finish>(proposed), nullptr);
  const auto lost = feed(node_event::LinkClosed{link_});
  ASSERT_NE(find<node_action::Dial>(lost), nullptr);
  link_ = find<node_action::Dial>(lost)->link;
  const auto opened = feed(node_event::LinkOpened{link_, "10.0.0.2"});
  ASSERT_NE(sent<Hello>(opened), nullptr);
  EXPECT_EQ(sent<Hello>(opened)->ending.exit_code, 7);
  time_ += settings().rejoin_for + seconds(1);
  const auto end = feed(node_event::Tick{});
  ASSERT_NE(find<node_action::Finish>(end), nullptr);
  EXPECT_EQ(find<node_action::Finish>(end)->exit_code, 7);
}

TEST_F(OneMember, ForgetsTheEndOfAReplacedRound) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 4));
  receive(ProposeEnd{{.origin = {3, 4}, .exit_code = 0, .why = "done"}});
  receive(release(3, 5));
  EXPECT_FALSE(member_.hello("10.0.0.2").ending.exists());
}

// Two jobs run one after the other at the same address. A node of the second job must not exit with the exit code of the first
// job.
TEST_F(OneMember, WaitsForTheNextJobAfterAnEarlierOne) {
  time_ += milliseconds(200);
  const auto before = receive(JobOver{.round = {1, 3}, .exit_code = 0, .why = "done", .ended_ms_ago = 1500});
  EXPECT_EQ(find<node_action::Finish>(before), nullptr);
  EXPECT_NE(find<node_action::CloseLink>(before), nullptr);
  time_ += seconds(2);
  const auto again = feed(node_event::Tick{});
  ASSERT_NE(find<node_action::Dial>(again), nullptr);
  link_ = find<node_action::Dial>(again)->link;
  feed(node_event::LinkOpened{link_, "10.0.0.2"});
  const auto end = receive(JobOver{.round = {1, 4}, .exit_code = 3, .why = "a worker failed", .ended_ms_ago = 100});
  // The node was already running when this job ended. So the end of the job applies to it.
  ASSERT_NE(find<node_action::Finish>(end), nullptr);
}

// A signal arrives while the node has no coordinator. The node must send it to the next coordinator.
TEST_F(OneMember, SendsAnEarlierSignalToItsCoordinator) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  feed(node_event::LinkClosed{link_});
  const auto requested = feed(StopRequest{15});
  EXPECT_EQ(find<node_action::Finish>(requested), nullptr) << "its workers stop still";
  feed(node_event::LinkOpened{kSelfLink});
  link_ = kSelfLink;
  const auto leads = receive(Welcome{.term = 4, .coordinator = {2}, .lease_ms = 5000});
  ASSERT_NE(sent<StopRequest>(leads), nullptr);
  EXPECT_EQ(sent<StopRequest>(leads)->signal, 15);
}

// Another node may have had this rank and died without closing its connection. The dead node keeps the rank for one more
// lease, so the refused node must retry once.
TEST_F(OneMember, RetriesATakenRankOnce) {
  const Refused taken{.reason = Refusal::kRankTaken, .text = "node rank 1 is taken", .retry_after_ms = 6000};
  const auto first = receive(taken);
  EXPECT_EQ(find<node_action::Finish>(first), nullptr);
  time_ += seconds(6);
  const auto again = feed(node_event::Tick{});
  ASSERT_NE(find<node_action::Dial>(again), nullptr);
  link_ = find<node_action::Dial>(again)->link;
  EXPECT_NE(sent<Hello>(feed(node_event::LinkOpened{link_, "10.0.0.2"})), nullptr);
  const auto second = receive(taken);
  ASSERT_NE(find<node_action::Finish>(second), nullptr);
  EXPECT_EQ(find<node_action::Finish>(second)->exit_code, 2);
}

// The job may have lost a node without detecting it yet, so it may need this node. Therefore the node retries once.
TEST_F(OneMember, RetriesACompleteJobOnce) {
  const Refused surplus{.reason = Refusal::kBadHello, .text = "the job has all 2 nodes", .retry_after_ms = 6000};
  EXPECT_EQ(find<node_action::Finish>(receive(surplus)), nullptr);
  time_ += seconds(6);
  const auto again = feed(node_event::Tick{});
  ASSERT_NE(find<node_action::Dial>(again), nullptr);
  link_ = find<node_action::Dial>(again)->link;
  feed(node_event::LinkOpened{link_, "10.0.0.2"});
  const auto second = receive(surplus);
  ASSERT_NE(find<node_action::Finish>(second), nullptr);
  EXPECT_EQ(find<node_action::Finish>(second)->exit_code, 2);
}

TEST_F(OneMember, ReportsItsProgramAndNodeCounts) {
  MemberSettings mine = settings();
  mine.command = 11;
  mine.min_nodes = 2;
  mine.max_nodes = 3;
  Member member(mine, std::nullopt, now());
  const LinkId link = find<node_action::Dial>(member.on(node_event::Tick{}, now()))->link;
  const auto opened = member.on(node_event::LinkOpened{link, "10.0.0.2"}, now());
  const auto* hello = sent<Hello>(opened);
  ASSERT_NE(hello, nullptr);
  EXPECT_EQ(hello->command, 11U);
  EXPECT_EQ(hello->min_nodes, 2);
  EXPECT_EQ(hello->max_nodes, 3);
}

TEST_F(OneMember, ReportsStateHeldAtAStop) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  receive(StopAndSave{.round = {3, 0}, .signal = 15});
  const auto over = feed(member_event::WorkersEnded{.holds = true});
  ASSERT_NE(sent<Stopped>(over), nullptr);
  EXPECT_TRUE(sent<Stopped>(over)->holds);
}

TEST_F(OneMember, DoesNotVoteWhileItsCoordinatorMayLead) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  const Time contact = time_;
  const auto lost = feed(node_event::LinkClosed{link_});
  ASSERT_NE(find<node_action::Dial>(lost), nullptr);
  link_ = find<node_action::Dial>(lost)->link;
  feed(node_event::LinkOpened{link_, "10.0.0.2"});
  EXPECT_EQ(sent<Vote>(receive(VoteRequest{.term = 4, .candidate = {1}, .stamp = 1})), nullptr);
  EXPECT_EQ(member_.may_vote_at(), contact + std::chrono::milliseconds(6250));
  time_ = member_.may_vote_at();
  const auto actions = feed(node_event::Tick{});
  ASSERT_NE(sent<Vote>(actions), nullptr);
  EXPECT_TRUE(sent<Vote>(actions)->granted());
}

TEST_F(OneMember, VotesImmediatelyAfterALeadershipTransfer) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  const TransferLeadership handed{.node = {1}, .to = {.group_rank = 1, .node = {2}, .address = {"10.0.0.2", 7}}, .state = {}};
  const auto actions = receive(handed);
  EXPECT_TRUE(member_.searching());
  ASSERT_NE(member_.leadership_transfer(), nullptr);
  EXPECT_EQ(member_.candidate_rank(), 0u);
  EXPECT_LE(member_.may_campaign_at(), time_);
}

// A failure that no coordinator has counted yet must be reported to the next coordinator. If it were not, the failure would
// not count as a restart.
TEST_F(OneMember, RepeatsAFailureToTheNextCoordinator) {
  receive(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  receive(release(3, 0));
  receive(answer(time_, seconds(4)));
  FailureReport report;
  report.failed.status.code = 7;
  feed(report);
  feed(member_event::WorkersEnded{});
  const auto closed = feed(node_event::LinkClosed{link_});
  const auto* dial = find<node_action::Dial>(closed);
  ASSERT_NE(dial, nullptr);
  link_ = dial->link;
  const auto opened = feed(node_event::LinkOpened{link_, "10.0.0.2"});
  ASSERT_NE(sent<Hello>(opened), nullptr);
  EXPECT_TRUE(sent<Hello>(opened)->failed);
  const auto welcomed = receive(Welcome{.term = 4, .coordinator = {3}, .lease_ms = 5000});
  ASSERT_NE(sent<FailureReport>(welcomed), nullptr);
  EXPECT_EQ(sent<FailureReport>(welcomed)->failed.status.code, 7);
  EXPECT_EQ(sent<FailureReport>(welcomed)->round, (RoundId{3, 0}));
}

// The host was suspended for longer than the time limit of the search. After the host has resumed, the node is elected before
// it checks the limit. The node must not give up in this case.
TEST_F(OneMember, FollowsItselfAfterALongSearch) {
  time_ += std::chrono::hours(1);
  const auto actions = feed(node_event::LinkOpened{kSelfLink, ""});
  EXPECT_NE(sent<Hello>(actions), nullptr);
  EXPECT_EQ(find<node_action::Finish>(actions), nullptr);
  EXPECT_FALSE(member_.over());
}

TEST_F(OneMember, BacksOffAfterAVote) {
  EXPECT_LE(member_.may_campaign_at(), time_);
  receive(VoteRequest{.term = 6, .candidate = {1}, .stamp = 1});
  EXPECT_EQ(member_.may_campaign_at(), time_ + seconds(2));
}

TEST_F(OneMember, RecordsTheRosterOfItsRelease) {
  member_.keep_roster(Roster{.origin = {3, 0}, .nodes = {{1}, {2}}});
  const auto actions = member_.take();
  const auto* remember = find<member_action::Remember>(actions);
  ASSERT_NE(remember, nullptr);
  EXPECT_EQ(remember->record.roster.nodes.size(), 2u);
}

}  // namespace
}  // namespace ddprun::rendezvous
