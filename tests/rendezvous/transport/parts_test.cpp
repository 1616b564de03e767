// Tests the pure parts of the transport: frames, the admission of connections, and the log of bad peers.
#include <gtest/gtest.h>

#include "rendezvous/transport/admission.hpp"
#include "rendezvous/transport/fault.hpp"
#include "rendezvous/transport/frame.hpp"

namespace ddprun::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = Admission::TimePoint;

TEST(FrameReader, ReassemblesFramesFromAnyPieces) {
  std::string stream;
  const std::vector<std::string> frames{"one", "", std::string(300, 'x')};
  for (const std::string& frame : frames) append_frame(frame, stream);
  for (std::size_t cut = 1; cut <= stream.size(); ++cut) {
    FrameReader reader(1000);
    std::vector<std::string> found;
    for (std::size_t at = 0; at < stream.size(); at += cut) {
      reader.feed(std::string_view(stream).substr(at, cut));
      while (const auto frame = reader.next()) found.emplace_back(*frame);
    }
    EXPECT_EQ(found, frames) << "in parts of " << cut;
  }
}

TEST(FrameReader, OversizedLengthIsAPermanentError) {
  FrameReader reader(16);
  std::string stream;
  append_frame("fits", stream);
  reader.feed(stream + std::string("\x00\x00\x00\x11", 4));
  EXPECT_EQ(reader.next(), "fits");
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_EQ(reader.too_large(), 17U);
  reader.feed(stream);
  EXPECT_EQ(reader.next(), std::nullopt);
}

SourceAddress source(std::uint8_t last) {
  SourceAddress address{};
  address.back() = last;
  return address;
}

Admission::Limits small() {
  Admission::Limits limits;
  limits.total = 4;
  limits.silent_per_source = 2;
  limits.handshake_time = seconds(5);
  limits.grace = seconds(1);
  limits.min_wait = milliseconds(100);
  return limits;
}

TEST(Admission, OldestSilentPeerOfTheSourceIsEvictedFirst) {
  Admission admission(small());
  const TimePoint now{};
  const auto other = admission.admit(source(1), now);
  const auto first = admission.admit(source(2), now);
  const auto second = admission.admit(source(2), now);
  EXPECT_TRUE(other.evicted.empty() && first.evicted.empty() && second.evicted.empty());
  EXPECT_EQ(admission.admit(source(2), now + seconds(1)).evicted, std::vector<Admission::Id>{first.id});
  EXPECT_EQ(admission.size(), 3U);
}

TEST(Admission, BurstOfOneSourceGetsTheMinimumWait) {
  Admission admission(small());
  const TimePoint now{};
  const auto first = admission.admit(source(1), now);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(admission.admit(source(1), now + milliseconds(1)).evicted.empty());
  EXPECT_FALSE(admission.may_admit(now + milliseconds(99)));
  EXPECT_EQ(admission.admits_at(), now + milliseconds(100));
  EXPECT_EQ(admission.admit(source(1), now + milliseconds(100)).evicted, std::vector<Admission::Id>{first.id});
}

TEST(Admission, FullTableEvictsTheOldestSilentPeer) {
  Admission admission(small());
  const TimePoint now{};
  const auto member = admission.admit(source(1), now);
  admission.started(member.id);
  const auto idle = admission.admit(source(2), now);
  admission.admit(source(3), now);
  admission.admit(source(4), now);
  EXPECT_EQ(admission.admit(source(5), now + milliseconds(100)).evicted, std::vector<Admission::Id>{idle.id});
}

TEST(Admission, StartedPeersAreKeptWithinTheGrace) {
  Admission admission(small());
  const TimePoint now{};
  std::vector<Admission::Id> members;
  for (int i = 0; i < 4; ++i) {
    members.push_back(admission.admit(source(1), now).id);
    admission.started(members.back());  // all these members have the same source address
  }
  EXPECT_FALSE(admission.may_admit(now + milliseconds(999)));
  EXPECT_EQ(admission.admits_at(), now + seconds(1));
  EXPECT_TRUE(admission.may_admit(now + seconds(1)));
  EXPECT_EQ(admission.admit(source(1), now + seconds(1)).evicted, std::vector<Admission::Id>{members.front()});
  admission.forget(members[1]);
  EXPECT_TRUE(admission.may_admit(now));
}

TEST(Admission, StartedPeersPerSourceAreLimited) {
  Admission::Limits limits = small();
  limits.started_per_source = 2;
  Admission admission(limits);
  const TimePoint now{};
  std::vector<Admission::Id> recordings;
  for (int i = 0; i < 4; ++i) {
    recordings.push_back(admission.admit(source(1), now).id);
    // a peer that replays a hello also counts as started, because the hello proves knowledge of the key
    admission.started(recordings.back());
  }
  // This time is later than the limit for silent peers (`moment`), but earlier than `grace`.
  const TimePoint later = now + milliseconds(100);
  ASSERT_TRUE(admission.may_admit(later));
  EXPECT_EQ(admission.admit(source(2), later).evicted, std::vector<Admission::Id>{recordings[2]});
  EXPECT_EQ(admission.admit(source(3), later).evicted, std::vector<Admission::Id>{recordings[3]});
  admission.forget(recordings[0]);
  const auto again = admission.admit(source(1), later).id;
  admission.started(again);  // this peer takes the slot of the removed peer
  for (int i = 0; i < 2; ++i) EXPECT_NE(admission.evict_one(), again);
  EXPECT_EQ(admission.evict_one(), recordings[1]);
  EXPECT_EQ(admission.evict_one(), again);
}

TEST(Admission, HandshakeTimeIsEqualForAll) {
  Admission admission(small());
  const TimePoint now{};
  const auto silent = admission.admit(source(1), now).id;
  const auto started = admission.admit(source(2), now + seconds(1)).id;
  admission.started(started);
  EXPECT_EQ(admission.next_deadline(), now + seconds(5));
  EXPECT_TRUE(admission.expire(now + milliseconds(4999)).empty());
  EXPECT_EQ(admission.expire(now + seconds(5)), std::vector<Admission::Id>{silent});
  EXPECT_EQ(admission.expire(now + seconds(6)), std::vector<Admission::Id>{started});
  EXPECT_EQ(admission.next_deadline(), std::nullopt);
  EXPECT_EQ(admission.size(), 0U);
}

TEST(Admission, SilentPeersAreEvictedBeforeStartedOnes) {
  Admission admission(small());
  const TimePoint now{};
  const auto started = admission.admit(source(1), now).id;
  admission.started(started);
  const auto silent = admission.admit(source(1), now).id;
  EXPECT_EQ(admission.evict_one(), silent);
  EXPECT_EQ(admission.evict_one(), started);
  EXPECT_EQ(admission.evict_one(), std::nullopt);
}

TEST(BadPeerLog, LogsEachKindOncePerTenSeconds) {
  BadPeerLog log;
  const BadPeerLog::TimePoint now{};
  EXPECT_EQ(log.note(PeerFault::kWrongToken, "10.0.0.7:1", "refused", now), "10.0.0.7:1 refused");
  EXPECT_EQ(log.note(PeerFault::kWrongToken, "10.0.0.7:2", "refused", now + seconds(9)), std::nullopt);
  EXPECT_NE(log.note(PeerFault::kNotTls, "10.0.0.8:1", "refused", now + seconds(9)), std::nullopt);
  EXPECT_EQ(log.note(PeerFault::kWrongToken, "10.0.0.7:3", "refused", now + seconds(10)),
            "10.0.0.7:3 refused (and 1 similar connections since the last such line)");
  EXPECT_EQ(log.count(PeerFault::kWrongToken), 3U);
}

}  // namespace
}  // namespace ddprun::test
