// Tests the wire format: decoding returns the encoded message, limits are enforced, and invalid data is refused as soon as it
// is detected.
#include "rendezvous/wire/codec.hpp"

#include "rendezvous/transport/shared.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <random>
#include <set>

#include "tests/common/temporary_folder.hpp"
#include "tests/repository.hpp"

namespace ddprun::rendezvous {
namespace {

RestartHistory some_history() {
  RestartHistory history{.used = 1};
  history.by_cause.back() = 3;
  history.rounds = {{.cause = Cause::kHang,
                     .rank = 7,
                     .status = {.code = 0, .signal = 9, .core_dumped = true},
                     .step = 12,
                     .resumed_from = 4,
                     .newest_checkpoint = 8,
                     .lasted = std::chrono::nanoseconds(5),
                     .memory_requested = 65535,
                     .shrink = channel::Shrink::kDone}};
  return history;
}

Hello some_hello() {
  Hello hello;
  hello.node = {1, 2, 3};
  hello.incarnation = std::numeric_limits<std::uint64_t>::max();
  hello.run.fill(9);
  hello.wanted_group_rank = 3;
  hello.role = "reader";
  hello.local_world_size = 8;
  hello.hostname = "häuschen";
  hello.listens = {"2001:db8::1", 29500};
  hello.master_port = 40001;
  hello.death_notice_port = 4711;
  hello.death_notice_key.fill(5);
  hello.command = 77;
  hello.min_nodes = 2;
  hello.max_nodes = 4;
  hello.workers = Workers::kStopping;
  hello.workers_round = {2, 7};
  hello.state = {.promised_term = 3,
                 .current = {{2, 7}, 4, 1},
                 .previous = {{1, 6}, 3, -1},
                 .budget = {.restart_count = 2, .history = some_history()}};
  return hello;
}

Release some_release() {
  Release release;
  release.id = {2, 8};
  release.group_rank = 1;
  release.nodes = 3;
  release.previous = {{2, 7}, 4, 1};
  release.rank_offset = 8;
  release.world_size = 24;
  release.role_rank_offset = 8;
  release.role_world_size = 24;
  release.master = {"10.0.0.1", 29500};
  release.budget = {.restart_count = 2, .history = some_history()};
  release.max_restarts = 3;
  release.coordinator = {0, {1}, {"10.0.0.1", 29400}};
  release.successors = {{1, {2}, {"10.0.0.2", 29401}}, {2, {3}, {"10.0.0.3", 29402}}};
  return release;
}

TEST(RendezvousCodec, HelloRoundTrips) {
  const Hello sent = some_hello();
  const FromMember decoded = decode_from_member(encode(FromMember{sent}));
  const Hello& got = std::get<Hello>(decoded);
  EXPECT_EQ(got.node, sent.node);
  EXPECT_EQ(got.incarnation, sent.incarnation);
  EXPECT_EQ(got.death_notice_port, sent.death_notice_port);
  EXPECT_EQ(got.death_notice_key, sent.death_notice_key);
  EXPECT_EQ(got.run, sent.run);
  EXPECT_EQ(got.wanted_group_rank, 3);
  EXPECT_EQ(got.role, "reader");
  EXPECT_EQ(got.local_world_size, 8);
  EXPECT_EQ(got.hostname, sent.hostname);
  EXPECT_EQ(got.listens, sent.listens);
  EXPECT_EQ(got.master_port, 40001);
  EXPECT_EQ(got.command, 77U);
  EXPECT_EQ(got.min_nodes, 2);
  EXPECT_EQ(got.max_nodes, 4);
  EXPECT_FALSE(got.coordinates);
  EXPECT_EQ(got.workers, Workers::kStopping);
  EXPECT_EQ(got.workers_round, sent.workers_round);
  EXPECT_EQ(got.state, sent.state);
}

TEST(RendezvousCodec, ReleaseRoundTrips) {
  const Release sent = some_release();
  const FromCoordinator decoded = decode_from_coordinator(encode(FromCoordinator{sent}));
  const Release& got = std::get<Release>(decoded);
  EXPECT_EQ(got.id, sent.id);
  EXPECT_EQ(got.previous, sent.previous);
  EXPECT_EQ(got.rank_offset, 8);
  EXPECT_EQ(got.world_size, 24);
  EXPECT_EQ(got.master, sent.master);
  EXPECT_EQ(got.budget, sent.budget);
  EXPECT_EQ(got.coordinator, sent.coordinator);
  EXPECT_EQ(got.successors, sent.successors);
}

// Encodes a message, decodes the result and encodes it again. Both encodings must be equal, so that no field is lost.
template <class Variant>
void expect_stable(const Variant& message) {
  const std::string frame = encode(message);
  if constexpr (std::is_same_v<Variant, FromMember>) {
    const FromMember again = decode_from_member(frame);
    EXPECT_EQ(again.index(), message.index());
    EXPECT_EQ(encode(again), frame);
  } else {
    const FromCoordinator again = decode_from_coordinator(frame);
    EXPECT_EQ(again.index(), message.index());
    EXPECT_EQ(encode(again), frame);
  }
}

TEST(RendezvousCodec, EveryMessageRoundTrips) {
  FailureReport failure;
  failure.failed.shrink = channel::Shrink::kDone;
  failure.round = {1, 2};
  failure.failed.cause = Cause::kStopped;
  failure.failed.status.signal = 9;
  failure.time_ns = std::numeric_limits<std::int64_t>::min();
  failure.message = "SIGKILL";
  failure.others_stay = true;
  channel::StoreRequest request;
  request.id = 5;
  request.op = channel::StoreRequest::Op::kWait;
  request.keys = {"a", "", std::string("\0b", 2)};
  request.timeout_ms = -1;
  channel::StoreReply reply;
  reply.status = channel::StoreReply::Status::kError;
  reply.value = std::string(70000, 'x');
  reply.message = "no";
  for (const FromMember& message :
       std::vector<FromMember>{some_hello(), Ready{{1, 2}, 3}, failure, Done{{1, 2}}, StopRequest{15}, StopReady{{1, 2}, 77},
                               Stopped{{1, 2}, true, true}, Leave{"maintenance"}, Ping{1, 2, 3, {4, 5}, 6}, Vote{6, 7, 8},
                               StoreQuery{{1, 2}, 3, request}, Resume{{{1}, 2, 3}, 4}, Received{5},
                               ClusterQuery{7, 4096, "status", {9}}, NodeAnswer{{3}, 7, "{}"}}) {
    expect_stable(message);
  }
  for (const FromCoordinator& message : std::vector<FromCoordinator>{
           Welcome{.term = 1, .coordinator = {4}, .lease_ms = 5000, .stamp = 9, .hostname = "gpu1"},
           Refused{.reason = Refusal::kSetAside, .text = "later", .retry_after_ms = 100}, Redirect{3, {"h", 1}}, some_release(),
           RoundOver{{1, 2}, OverReason::kWorkerFailure, "why", failure, true}, StopAndSave{{1, 2}, 15, true, true},
           StopAt{{1, 2}, 400}, JobOver{{1, 2}, 82, "spent"}, Pong{1, 2, 3, 4, {5, 6}, 7}, VoteRequest{1, {2}, 5},
           StoreAnswer{{1, 2}, 3, reply}, Resumed{8}, Received{9}, ProposeEnd{{{1, 2}, 82, "spent"}},
           TransferLeadership{{4}, {.group_rank = 1, .node = {2}, .address = {"h", 3}}, some_hello().state},
           Waiting{"for the workers of host2"}, NodeQuery{{3}, 7, 4096, "status"}, JobAnswer{7, 3, {4}, "{}"},
           MayLeave{{3, 4}}}) {
    expect_stable(message);
  }
}

TEST(RendezvousCodec, CommonFieldsOfOtherVersionsAreRead) {
  Hello hello = some_hello();
  hello.protocol = 77;
  std::string body = encode(FromMember{hello});
  body += "whatever a later version has";
  EXPECT_EQ(std::get<Hello>(decode_from_member(body)).protocol, 77);

  const Refused refused{.protocol = 77, .reason = Refusal::kVersion, .text = "this is 77, you are 1"};
  body = encode(FromCoordinator{refused}) + "more";
  EXPECT_EQ(std::get<Refused>(decode_from_coordinator(body)).text, refused.text);
}

TEST(RendezvousCodec, ReflectedFrameIsRefused) {
  EXPECT_THROW(decode_from_coordinator(encode(FromMember{some_hello()})), ProtocolError);
  EXPECT_THROW(decode_from_member(encode(FromCoordinator{some_release()})), ProtocolError);
}

TEST(RendezvousCodec, EveryTruncationIsRefused) {
  const std::string body = encode(FromMember{some_hello()});
  for (std::size_t length = 0; length < body.size(); ++length) {
    EXPECT_THROW(decode_from_member(std::string_view(body).substr(0, length)), ProtocolError) << length;
  }
  EXPECT_THROW(decode_from_member(body + "x"), ProtocolError);
}

TEST(RendezvousCodec, LimitsHoldWhenEncoding) {
  Hello hello = some_hello();
  hello.role = std::string(kMaxRoleBytes + 1, 'r');
  EXPECT_THROW(encode(FromMember{hello}), ProtocolError);

  Release release = some_release();
  release.successors.resize(kSuccessors + 1);
  EXPECT_THROW(encode(FromCoordinator{release}), ProtocolError);

  // A text for users that is too long must be cut between two characters, not inside one.
  const Leave leave{std::string(kMaxTextBytes - 1, 'a') + "ä"};
  EXPECT_EQ(std::get<Leave>(decode_from_member(encode(FromMember{leave}))).why, std::string(kMaxTextBytes - 1, 'a'));
}

// The longest Hello may arrive in one packet with the end of the handshake, before the peer has proved that it has the token.
// It must be within the limit for that phase.
TEST(RendezvousCodec, LongestHelloFitsTheLimitBeforeTheToken) {
  Hello hello = some_hello();
  hello.role = std::string(kMaxRoleBytes, 'r');
  hello.hostname = hello.listens.host = std::string(kMaxHostBytes, 'h');
  hello.state.budget.history.rounds.resize(kRoundsRemembered);
  hello.ending = {.origin = {2, 8}, .exit_code = 1, .why = std::string(kMaxTextBytes, 'w')};
  const std::string frame = encode(FromMember{hello});
  constexpr std::size_t kHandshake = 1024;
  EXPECT_LE(frame.size() + kHandshake, TransportLimits{}.bytes_before_token);
  const Hello read = std::get<Hello>(decode_from_member(frame));
  EXPECT_GE(read.ending.why.size(), 500U);
  EXPECT_TRUE(hello.ending.why.starts_with(read.ending.why));
  EXPECT_EQ(read.state, hello.state);
  hello.ending.why = "short";
  EXPECT_EQ(std::get<Hello>(decode_from_member(encode(FromMember{hello}))).ending.why, "short");
}

TEST(RendezvousCodec, OversizedLengthAllocatesNothing) {
  std::string body = encode(FromMember{StoreQuery{}});
  // The number of keys comes after the type (1 byte), the round (16 bytes), the rank (4), the id (8) and the operation (1).
  const std::size_t keys = 1 + 16 + 4 + 8 + 1;
  body[keys] = '\xff';
  body[keys + 1] = '\xff';
  EXPECT_THROW(decode_from_member(body), ProtocolError);
}

TEST(RendezvousCodec, AReleaseHasAConstantSize) {
  Release release = some_release();
  const std::size_t small = encode(FromCoordinator{release}).size();
  release.nodes = kMaxNodes;
  release.world_size = 1 << 30;
  EXPECT_EQ(encode(FromCoordinator{release}).size(), small);
  EXPECT_LT(small, 1000u);
}

// Each seed file of the fuzzer must either be refused or encode to the same bytes. At least one message of each kind must be
// accepted. If all were refused, the fuzzer would only test refusals.
TEST(RendezvousCodec, FuzzerSeedsAreDecoded) {
  std::set<std::size_t> member_types, coordinator_types;
  bool held = false, stay = false;
  for (const auto& seed : std::filesystem::directory_iterator(test::repository() / "tests/fuzz/corpus/codec")) {
    const std::string frame = test::read_text(seed.path());
    try {
      if (!frame.empty() && (static_cast<unsigned char>(frame[0]) & 0x80) != 0) {
        const FromCoordinator message = decode_from_coordinator(frame);
        expect_stable(message);
        coordinator_types.insert(message.index());
        const auto* over = std::get_if<RoundOver>(&message);
        held = held || (over != nullptr && over->hold);
      } else {
        const FromMember message = decode_from_member(frame);
        expect_stable(message);
        member_types.insert(message.index());
        const auto* failure = std::get_if<FailureReport>(&message);
        stay = stay || (failure != nullptr && failure->others_stay);
      }
    } catch (const ProtocolError&) {
    }
  }
  EXPECT_EQ(member_types.size(), std::variant_size_v<FromMember>) << testing::PrintToString(member_types);
  EXPECT_EQ(coordinator_types.size(), std::variant_size_v<FromCoordinator>) << testing::PrintToString(coordinator_types);
  EXPECT_TRUE(held);
  EXPECT_TRUE(stay);
}

TEST(RendezvousCodec, RandomChangesOnlyThrow) {
  std::mt19937 random(1);
  std::vector<std::string> seeds{encode(FromMember{some_hello()}), encode(FromMember{StoreQuery{}})};
  for (int i = 0; i < 20000; ++i) {
    std::string body = seeds[static_cast<std::size_t>(i) % seeds.size()];
    for (int change = 0; change < 3; ++change) body[random() % body.size()] = static_cast<char>(random());
    try {
      const FromMember message = decode_from_member(body);
      if (const auto* hello = std::get_if<Hello>(&message); hello == nullptr || hello->protocol == kProtocolVersion) {
        EXPECT_EQ(decode_from_member(encode(message)).index(), message.index());
      }
    } catch (const ProtocolError&) {
    }
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
