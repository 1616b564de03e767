// Reactions of one node to messages of a current or former coordinator. These are the rules of member.hpp that no schedule of a
// correct network needs, so the simulator can't show them.
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
    const auto* send = std::get_if<member_action::Send>(&action);
    if (send == nullptr) continue;
    if (const auto* message = std::get_if<Message>(&send->message)) return message;
  }
  return nullptr;
}

// A node that has dialed the only address it knows.
class OneMember : public testing::Test {
 protected:
  OneMember() : member_(settings(), std::nullopt, now()) {
    link_ = find<member_action::Dial>(member_.on(member_event::Tick{}, now()))->link;
    tell(member_event::Opened{link_, "10.0.0.2"});
  }

  static MemberSettings settings() {
    MemberSettings settings;
    settings.id = {2};
    settings.listens = {"10.0.0.2", 7};
    settings.endpoints = {{"10.0.0.1", 29400}};
    return settings;
  }
  Now now() const { return {time_, 0}; }
  std::vector<MemberAction> tell(const MemberEvent& event) { return member_.on(event, now()); }
  std::vector<MemberAction> hear(FromCoordinator message) { return tell(member_event::Heard{link_, std::move(message)}); }
  Release release(std::uint64_t term, std::int64_t round) const {
    Release release;
    release.id = {term, round};
    release.born = term;
    release.group_rank = 1;
    release.nodes = 2;
    release.world_size = 2;
    return release;
  }
  Pong answer(Time asked, std::chrono::nanoseconds grant) const {
    return {.echo = stamp_of(asked), .stamp = stamp_of(asked), .realtime_ns = 0, .grant_ns = grant.count(), .committed = {}};
  }

  Time time_{seconds(1000)};
  Member member_;
  LinkId link_ = 0;
};

TEST_F(OneMember, StartsItsWorkersOnceItHasBothAReleaseAndAGrant) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  EXPECT_EQ(find<member_action::StartWorkers>(hear(release(3, 0))), nullptr);
  const auto actions = hear(answer(time_, seconds(4)));
  const auto* start = find<member_action::StartWorkers>(actions);
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->release.id, (RoundId{3, 0}));
  EXPECT_EQ(start->until, time_ + seconds(4));
}

TEST_F(OneMember, CountsAGrantFromItsQuestionHoweverLateTheAnswerComes) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  const Time asked = time_;
  time_ += seconds(2);
  const auto actions = hear(answer(asked, seconds(4)));
  const auto* start = find<member_action::StartWorkers>(actions);
  ASSERT_NE(start, nullptr);
  EXPECT_EQ(start->until, asked + seconds(4));
}

TEST_F(OneMember, StartsNothingWithAGrantThatIsNearlyOver) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  const Time asked = time_;
  time_ += seconds(3);
  EXPECT_EQ(find<member_action::StartWorkers>(hear(answer(asked, seconds(4)))), nullptr);
  EXPECT_NE(find<member_action::StartWorkers>(hear(answer(time_ - seconds(1), seconds(4)))), nullptr);
}

// The coordinator knows no earlier job, so it needs the nodes' answers before it grants anything.
TEST_F(OneMember, AnswersAWelcomeWithItsStampAtOnce) {
  const auto welcomed = hear(Welcome{.term = 1, .coordinator = {1}, .lease_ms = 5000, .stamp = 77});
  ASSERT_NE(sent<Ping>(welcomed), nullptr);
  EXPECT_EQ(sent<Ping>(welcomed)->echo, 77);
  EXPECT_EQ(sent<Ping>(hear(answer(time_, std::chrono::nanoseconds{0}))), nullptr);  // only once
}

TEST_F(OneMember, SaysAgainWhatItHasInstalledOnceThatIsOnDiskWhileItWaitsForAGrant) {
  hear(Welcome{.term = 1, .coordinator = {1}, .lease_ms = 5000});
  hear(answer(time_, std::chrono::nanoseconds{0}));
  EXPECT_EQ(find<member_action::StartWorkers>(hear(release(1, 1))), nullptr);
  const auto said = tell(member_event::RecordWritten{});
  ASSERT_NE(sent<Ping>(said), nullptr);
  EXPECT_EQ(sent<Ping>(said)->installed, (RoundId{1, 1}));
  EXPECT_NE(find<member_action::StartWorkers>(hear(answer(time_, seconds{3}))), nullptr);
  EXPECT_EQ(sent<Ping>(tell(member_event::RecordWritten{})), nullptr);
}

// The previous round counts until a majority is known to have installed this one. If it had few nodes, one more loss would be
// too many.
TEST_F(OneMember, AfterARoundOfFewSaysAtOnceWhatItHasInstalled) {
  hear(Welcome{.term = 1, .coordinator = {1}, .lease_ms = 5000});
  hear(release(1, 1));
  hear(answer(time_, seconds(4)));
  const auto after_a_round_of = [&](std::int32_t nodes, std::int64_t round) {
    Release next = release(1, round);
    next.previous = Config{.id = {1, round - 1}, .born = 1, .nodes = nodes, .rank = 1};
    tell(member_event::WorkersEnded{});
    hear(std::move(next));
    hear(answer(time_, seconds(4)));
    const auto said = tell(member_event::RecordWritten{});
    const Ping* const ping = sent<Ping>(said);
    return ping != nullptr && ping->installed == RoundId{1, round};
  };
  EXPECT_TRUE(after_a_round_of(kFewNodes, 2));
  EXPECT_FALSE(after_a_round_of(kFewNodes + 1, 3));
  Pong committed = answer(time_, seconds(4));
  committed.committed = {1, 3};
  hear(committed);
  EXPECT_EQ(sent<Ping>(tell(member_event::RecordWritten{})), nullptr);
}

// Its coordinator's term has risen since the welcome, for a node that had promised a later one. Without the promise, this node
// would have been refused after a restart: it knew a round of a term that it had not promised.
TEST_F(OneMember, PromisesTheTermOfItsRound) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  const auto* remembered = find<member_action::Remember>(hear(release(7, 0)));
  EXPECT_NE(remembered, nullptr);
  EXPECT_EQ(member_.state().promised_term, 7u);
}

// It had finished its work, so it stayed until the end; then the round was started again. Earlier it trained again and ignored
// the signal.
TEST_F(OneMember, AsksAgainToStopWhenItIsToWorkAfterAll) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  tell(member_event::WorkersDone{});
  EXPECT_EQ(find<member_action::JobOver>(tell(member_event::StopRequested{15})), nullptr);
  const auto again = hear(release(3, 1));
  ASSERT_NE(sent<StopAsk>(again), nullptr);
  EXPECT_EQ(sent<StopAsk>(again)->signal, 15);
}

TEST_F(OneMember, LeavesWhenTheRoundInWhichItWasDoneIsNotTheJobsAnyMore) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  tell(member_event::WorkersDone{});
  Release without = release(3, 1);
  without.group_rank = -1;
  hear(without);
  EXPECT_NE(find<member_action::JobOver>(tell(member_event::StopRequested{15})), nullptr);
}

TEST_F(OneMember, IgnoresAReleaseThatIsNotNewerThanItsRound) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 4));
  EXPECT_EQ(find<member_action::Remember>(hear(release(3, 4))), nullptr);
  EXPECT_EQ(find<member_action::Remember>(hear(release(3, 3))), nullptr);
  EXPECT_EQ(find<member_action::Remember>(hear(release(2, 9))), nullptr);
  EXPECT_EQ(member_.state().current.id, (RoundId{3, 4}));
}

// That coordinator may need this node, and must learn of the later term.
TEST_F(OneMember, LooksWhereItIsSentAlsoWhenItHasPromisedALaterTerm) {
  hear(VoteRequest{.term = 6, .candidate = {1}, .stamp = 1});
  const auto actions = hear(Redirect{.term = 5, .coordinator = {"10.0.0.9", 7}});
  const auto* dial = find<member_action::Dial>(actions);
  ASSERT_NE(dial, nullptr);
  EXPECT_EQ(dial->address.host, "10.0.0.9");
}

TEST_F(OneMember, FollowsNobodyOfAnEarlierTermThanItPromised) {
  hear(VoteRequest{.term = 6, .candidate = {1}, .stamp = 1});
  hear(Welcome{.term = 5, .coordinator = {1}, .lease_ms = 5000});
  EXPECT_TRUE(member_.looking());
}

TEST_F(OneMember, VotesOnceATerm) {
  const auto first = hear(VoteRequest{.term = 6, .candidate = {1}, .stamp = 1});
  ASSERT_NE(sent<Vote>(first), nullptr);
  EXPECT_TRUE(sent<Vote>(first)->given());
  const auto second = hear(VoteRequest{.term = 6, .candidate = {3}, .stamp = 1});
  ASSERT_NE(sent<Vote>(second), nullptr);
  EXPECT_FALSE(sent<Vote>(second)->given());
}

TEST_F(OneMember, HoldsItsWorkersWhenItMayAndIsReadyForTheNextRound) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  const auto over = hear(RoundOver{.round = {3, 0}, .why = "b was lost", .hold = true});
  ASSERT_NE(find<member_action::StopWorkers>(over), nullptr);
  EXPECT_TRUE(find<member_action::StopWorkers>(over)->hold);
  EXPECT_NE(sent<Ready>(tell(member_event::WorkersEnded{})), nullptr);
  time_ += seconds(60);  // they run under no grant
  EXPECT_EQ(find<member_action::StopWorkers>(tell(member_event::Closed{link_})), nullptr);
}

TEST_F(OneMember, DismissesWhomItHoldsForAFailureOfItsOwnWhenNothingIsToBeKept) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  tell(member_event::WorkersFailed{});
  tell(member_event::WorkersEnded{});
  const RoundOver over{.round = {3, 0}, .reason = OverReason::kWorkerFailure, .why = "states differ"};
  EXPECT_NE(find<member_action::DismissHeld>(hear(over)), nullptr);
  RoundOver holding = over;
  holding.hold = true;
  EXPECT_EQ(find<member_action::DismissHeld>(hear(holding)), nullptr);
}

TEST_F(OneMember, SaysAgainThatItIsDoneAndNotThatItIsReady) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  EXPECT_NE(sent<Done>(tell(member_event::WorkersDone{})), nullptr);
  const auto lost = tell(member_event::Closed{link_});
  ASSERT_NE(find<member_action::Dial>(lost), nullptr);
  link_ = find<member_action::Dial>(lost)->link;
  tell(member_event::Opened{link_, "10.0.0.2"});
  const auto back = hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  ASSERT_NE(sent<Done>(back), nullptr);
  EXPECT_EQ(sent<Done>(back)->round, (RoundId{3, 0}));
  EXPECT_EQ(sent<Ready>(back), nullptr);
}

// A round may start only to save the state that workers hold: the order to save arrives before they have started.
TEST_F(OneMember, StartsItsWorkersBeforeTheySave) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  const auto early = hear(StopAndSave{.round = {3, 0}, .signal = 15});
  EXPECT_EQ(find<member_action::StopAndSave>(early), nullptr);
  EXPECT_EQ(sent<Stopped>(early), nullptr);
  const auto actions = hear(answer(time_, seconds(4)));
  EXPECT_NE(find<member_action::StartWorkers>(actions), nullptr);
  ASSERT_NE(find<member_action::StopAndSave>(actions), nullptr);
  EXPECT_EQ(find<member_action::StopAndSave>(actions)->signal, 15);
}

// They wait for a round that will not start. So they run once more, as long as the grant allows.
TEST_F(OneMember, HasWhatIsHeldSavedWhileItsCoordinatorGrantsIt) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  hear(RoundOver{.round = {3, 0}, .why = "rank 0 failed", .hold = true});
  tell(member_event::WorkersEnded{});
  const auto actions = hear(StopAndSave{.round = {3, 0}, .held = true});
  ASSERT_NE(find<member_action::StopAndSave>(actions), nullptr);
  EXPECT_TRUE(find<member_action::StopAndSave>(actions)->held);
  ASSERT_NE(find<member_action::ExtendGrant>(actions), nullptr);
  EXPECT_EQ(find<member_action::ExtendGrant>(actions)->until, time_ + seconds(4));
  const auto saved = tell(member_event::WorkersEnded{.saved = true});
  ASSERT_NE(sent<Stopped>(saved), nullptr);
  EXPECT_TRUE(sent<Stopped>(saved)->saved);
  EXPECT_EQ(find<member_action::JobOver>(saved), nullptr);
  const auto end = hear(JobOver{.round = {3, 0}, .exit_code = 85, .why = "saved"});
  ASSERT_NE(find<member_action::JobOver>(end), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(end)->exit_code, 85);
}

TEST_F(OneMember, HasNothingSavedWithoutAGrant) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(1)));
  hear(RoundOver{.round = {3, 0}, .why = "rank 0 failed", .hold = true});
  tell(member_event::WorkersEnded{});
  time_ += seconds(2);
  const auto actions = hear(StopAndSave{.round = {3, 0}, .held = true});
  EXPECT_EQ(find<member_action::StopAndSave>(actions), nullptr);
  ASSERT_NE(sent<Stopped>(actions), nullptr);
  EXPECT_FALSE(sent<Stopped>(actions)->saved);
}

// The result of its workers counts, even after a signal.
TEST_F(OneMember, ThatIsDoneAfterASignalStaysUntilTheJobEnds) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  tell(member_event::StopRequested{15});
  const auto actions = tell(member_event::WorkersDone{});
  EXPECT_NE(sent<Done>(actions), nullptr);
  EXPECT_EQ(sent<Leave>(actions), nullptr);
  const auto end = hear(JobOver{.round = {3, 0}, .exit_code = 0, .why = "done"});
  ASSERT_NE(find<member_action::JobOver>(end), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(end)->exit_code, 0);
}

// The round ends for another reason. Until the coordinator sends MayLeave, the state that its workers hold may still be saved.
TEST_F(OneMember, WaitsForLeaveToGoWhenItsRoundEndsAfterASignal) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  tell(member_event::StopRequested{15});
  const auto over = hear(RoundOver{.round = {3, 0}, .why = "c was lost", .hold = true});
  ASSERT_NE(find<member_action::StopWorkers>(over), nullptr);
  EXPECT_TRUE(find<member_action::StopWorkers>(over)->hold);
  const auto held = tell(member_event::WorkersEnded{});
  EXPECT_EQ(sent<Leave>(held), nullptr);
  EXPECT_NE(sent<Ready>(held), nullptr);
  const auto goes = hear(MayLeave{{3, 0}});
  EXPECT_NE(sent<Leave>(goes), nullptr);
  ASSERT_NE(find<member_action::JobOver>(goes), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(goes)->exit_code, 143);
}

TEST_F(OneMember, AsksAlsoBetweenTwoRoundsWhetherItMayLeave) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  hear(RoundOver{.round = {3, 0}, .why = "c was lost", .hold = true});
  tell(member_event::WorkersEnded{});
  const auto asked = tell(member_event::StopRequested{15});
  EXPECT_NE(sent<StopAsk>(asked), nullptr);
  EXPECT_EQ(sent<Leave>(asked), nullptr);
  const auto alone = tell(member_event::Closed{link_});  // no coordinator is left that could allow it
  ASSERT_NE(find<member_action::JobOver>(alone), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(alone)->exit_code, 143);
}

// A scheduler that stops the job also signals finished nodes: they end when the job ends.
TEST_F(OneMember, ThatIsDoneStaysUntilTheJobEndsWhateverTheSignal) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  tell(member_event::WorkersDone{});
  const auto signalled = tell(member_event::StopRequested{15});
  EXPECT_EQ(find<member_action::JobOver>(signalled), nullptr);
  EXPECT_EQ(sent<Leave>(signalled), nullptr);
  const auto end = hear(JobOver{.round = {3, 0}, .exit_code = 85, .why = "saved"});
  ASSERT_NE(find<member_action::JobOver>(end), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(end)->exit_code, 85);
}

TEST_F(OneMember, LeavesTheOthersWhenAllHaveSaved) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  const auto asked = tell(member_event::StopRequested{15, true});
  ASSERT_NE(sent<StopAsk>(asked), nullptr);
  EXPECT_TRUE(sent<StopAsk>(asked)->saves);
  EXPECT_NE(find<member_action::StopAndSave>(hear(StopAndSave{.round = {3, 0}, .signal = 15, .goes_on = true})), nullptr);
  const auto saved = tell(member_event::WorkersEnded{.saved = true});
  EXPECT_NE(sent<Stopped>(saved), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(saved), nullptr);
  const auto over = hear(MayLeave{{3, 0}});
  EXPECT_NE(sent<Leave>(over), nullptr);
  ASSERT_NE(find<member_action::JobOver>(over), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(over)->exit_code, 85);
}

TEST_F(OneMember, IsReadyForTheNextRoundWhenAllHaveSavedForOneThatLeaves) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  hear(StopAndSave{.round = {3, 0}, .signal = 15, .goes_on = true});
  EXPECT_NE(sent<Stopped>(tell(member_event::WorkersEnded{.saved = true})), nullptr);
  const auto over = hear(RoundOver{.round = {3, 0}, .why = "b is leaving"});
  EXPECT_NE(sent<Ready>(over), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(over), nullptr);
}

TEST_F(OneMember, SaysForWhomItsCoordinatorWaits) {
  EXPECT_EQ(find<member_action::Say>(hear(Waiting{"waiting for host3"})), nullptr) << "nobody leads it yet";
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  const auto actions = hear(Waiting{"waiting for host3"});
  const auto* said = find<member_action::Say>(actions);
  ASSERT_NE(said, nullptr);
  EXPECT_EQ(said->notice.kind, NodeNotice::Kind::kWaiting);
  EXPECT_EQ(said->notice.text, "waiting for host3");
}

// A node that led before, or that gave up alone at the first address, must not end a job that other nodes lead.
TEST_F(OneMember, ObeysNoEndOfARoundBeforeItsOwn) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 4));
  const auto lost = tell(member_event::Closed{link_});
  ASSERT_NE(find<member_action::Dial>(lost), nullptr);
  link_ = find<member_action::Dial>(lost)->link;
  tell(member_event::Opened{link_, "10.0.0.2"});
  const auto before = hear(JobOver{.round = {1, -1}, .exit_code = 80, .why = "nobody came"});
  EXPECT_EQ(find<member_action::JobOver>(before), nullptr);
  EXPECT_NE(find<member_action::Close>(before), nullptr);
  time_ += seconds(1);
  const auto again = tell(member_event::Tick{});
  ASSERT_NE(find<member_action::Dial>(again), nullptr);
  link_ = find<member_action::Dial>(again)->link;
  tell(member_event::Opened{link_, "10.0.0.2"});
  const auto end = hear(JobOver{.round = {3, 4}, .exit_code = 0, .why = "done"});
  ASSERT_NE(find<member_action::JobOver>(end), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(end)->exit_code, 0);
}

// The nodes that could elect another coordinator have already ended.
TEST_F(OneMember, EndsAsItWasToldWhenItsCoordinatorIsLostAfterwards) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 4));
  const auto told = hear(Conclude{{.origin = {3, 4}, .exit_code = 7, .why = "the restarts are spent"}});
  ASSERT_NE(sent<Concluded>(told), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(told), nullptr);
  const auto lost = tell(member_event::Closed{link_});
  ASSERT_NE(find<member_action::Dial>(lost), nullptr);
  link_ = find<member_action::Dial>(lost)->link;
  const auto opened = tell(member_event::Opened{link_, "10.0.0.2"});
  ASSERT_NE(sent<Hello>(opened), nullptr);
  EXPECT_EQ(sent<Hello>(opened)->ending.exit_code, 7);
  time_ += settings().rejoin_for + seconds(1);
  const auto end = tell(member_event::Tick{});
  ASSERT_NE(find<member_action::JobOver>(end), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(end)->exit_code, 7);
}

TEST_F(OneMember, ForgetsTheEndOfARoundThatAnotherOneFollowed) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 4));
  hear(Conclude{{.origin = {3, 4}, .exit_code = 0, .why = "done"}});
  hear(release(3, 5));
  EXPECT_FALSE(member_.hello("10.0.0.2").ending.exists());
}

// Two jobs run one after the other at one address: a node of the second must not end with the exit code of the first.
TEST_F(OneMember, WaitsForTheNextJobWhereOneHadEndedBeforeItBegan) {
  time_ += milliseconds(200);
  const auto before = hear(JobOver{.round = {1, 3}, .exit_code = 0, .why = "done", .ended_ms_ago = 1500});
  EXPECT_EQ(find<member_action::JobOver>(before), nullptr);
  EXPECT_NE(find<member_action::Close>(before), nullptr);
  time_ += seconds(2);
  const auto again = tell(member_event::Tick{});
  ASSERT_NE(find<member_action::Dial>(again), nullptr);
  link_ = find<member_action::Dial>(again)->link;
  tell(member_event::Opened{link_, "10.0.0.2"});
  const auto end = hear(JobOver{.round = {1, 4}, .exit_code = 3, .why = "a worker failed", .ended_ms_ago = 100});
  ASSERT_NE(find<member_action::JobOver>(end), nullptr);  // it was already waiting when that job ended
}

// A signal came while there was no coordinator: the next coordinator must learn of it.
TEST_F(OneMember, TellsItsOwnCoordinatorOfASignalThatCameBefore) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  tell(member_event::Closed{link_});
  const auto asked = tell(member_event::StopRequested{15});
  EXPECT_EQ(find<member_action::JobOver>(asked), nullptr) << "its workers stop still";
  tell(member_event::Opened{kSelfLink});
  link_ = kSelfLink;
  const auto leads = hear(Welcome{.term = 4, .coordinator = {2}, .lease_ms = 5000});
  ASSERT_NE(sent<StopAsk>(leads), nullptr);
  EXPECT_EQ(sent<StopAsk>(leads)->signal, 15);
}

// The previous holder of the rank may have died without a message: it keeps the rank for one more lease.
TEST_F(OneMember, AsksOnceMoreForARankThatIsTaken) {
  const Refused taken{.reason = Refusal::kRankTaken, .text = "node rank 1 is taken", .retry_after_ms = 6000};
  const auto first = hear(taken);
  EXPECT_EQ(find<member_action::JobOver>(first), nullptr);
  time_ += seconds(6);
  const auto again = tell(member_event::Tick{});
  ASSERT_NE(find<member_action::Dial>(again), nullptr);
  link_ = find<member_action::Dial>(again)->link;
  EXPECT_NE(sent<Hello>(tell(member_event::Opened{link_, "10.0.0.2"})), nullptr);
  const auto second = hear(taken);
  ASSERT_NE(find<member_action::JobOver>(second), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(second)->exit_code, 2);
}

TEST_F(OneMember, VotesForNobodyWhileItsCoordinatorMayStillLead) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  const Time heard = time_;
  const auto lost = tell(member_event::Closed{link_});
  ASSERT_NE(find<member_action::Dial>(lost), nullptr);
  link_ = find<member_action::Dial>(lost)->link;
  tell(member_event::Opened{link_, "10.0.0.2"});
  EXPECT_EQ(sent<Vote>(hear(VoteRequest{.term = 4, .candidate = {1}, .stamp = 1})), nullptr);
  EXPECT_EQ(member_.may_vote_at(), heard + std::chrono::milliseconds(6250));
  time_ = member_.may_vote_at();
  const auto actions = tell(member_event::Tick{});
  ASSERT_NE(sent<Vote>(actions), nullptr);
  EXPECT_TRUE(sent<Vote>(actions)->given());
}

TEST_F(OneMember, VotesAtOnceWhenItsCoordinatorHasHandedOver) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  const HandOver handed{.node = {1}, .to = {.group_rank = 1, .node = {2}, .address = {"10.0.0.2", 7}}, .state = {}};
  const auto actions = hear(handed);
  EXPECT_TRUE(member_.looking());
  ASSERT_NE(member_.handed_over(), nullptr);
  EXPECT_EQ(member_.place_in_line(), 0u);
  EXPECT_LE(member_.may_stand_at(), time_);
}

// Otherwise the job would continue as if nothing had failed.
TEST_F(OneMember, SaysAgainToTheNextCoordinatorThatAWorkerFailed) {
  hear(Welcome{.term = 3, .coordinator = {1}, .lease_ms = 5000});
  hear(release(3, 0));
  hear(answer(time_, seconds(4)));
  FailureReport report;
  report.failed.status.code = 7;
  tell(member_event::WorkersFailed{report});
  tell(member_event::WorkersEnded{});
  const auto closed = tell(member_event::Closed{link_});
  const auto* dial = find<member_action::Dial>(closed);
  ASSERT_NE(dial, nullptr);
  link_ = dial->link;
  const auto opened = tell(member_event::Opened{link_, "10.0.0.2"});
  ASSERT_NE(sent<Hello>(opened), nullptr);
  EXPECT_TRUE(sent<Hello>(opened)->failed);
  const auto welcomed = hear(Welcome{.term = 4, .coordinator = {3}, .lease_ms = 5000});
  ASSERT_NE(sent<FailureReport>(welcomed), nullptr);
  EXPECT_EQ(sent<FailureReport>(welcomed)->failed.status.code, 7);
  EXPECT_EQ(sent<FailureReport>(welcomed)->round, (RoundId{3, 0}));
}

// Its host was suspended for longer than the search may take. At the moment of wake-up the node is elected.
TEST_F(OneMember, FindsItselfHoweverLongItLooked) {
  time_ += std::chrono::hours(1);
  const auto actions = tell(member_event::Opened{kSelfLink, ""});
  EXPECT_NE(sent<Hello>(actions), nullptr);
  EXPECT_EQ(find<member_action::JobOver>(actions), nullptr);
  EXPECT_FALSE(member_.over());
}

TEST_F(OneMember, StandsBackForWhomItVotedFor) {
  EXPECT_LE(member_.may_stand_at(), time_);
  hear(VoteRequest{.term = 6, .candidate = {1}, .stamp = 1});
  EXPECT_EQ(member_.may_stand_at(), time_ + seconds(2));
}

TEST_F(OneMember, RemembersTheMembersOfARoundThatItReleases) {
  std::vector<MemberAction> actions;
  member_.keep_roster(Roster{.origin = {3, 0}, .nodes = {{1}, {2}}}, actions);
  const auto* remember = find<member_action::Remember>(actions);
  ASSERT_NE(remember, nullptr);
  EXPECT_EQ(remember->record.roster.nodes.size(), 2u);
}

}  // namespace
}  // namespace ddprun::rendezvous
