// Tests that each query has the same effect as in PyTorch's TCPStore, and tests the limits for clients.
#include "launcher/tcp_store/script_store.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/launcher/tcp_store/store_client.hpp"

namespace ddprun::script_store {
namespace {

using testing::Test;

class ScriptStoreTest : public Test {
 protected:
  void SetUp() override {
    for (const int client : {1, 2, 3}) clients_.connect(client);
  }
  std::string request(std::string_view bytes) { return clients_.request(1, bytes); }

  Clients clients_;
};

TEST_F(ScriptStoreTest, APingIsEchoed) {
  EXPECT_EQ(request(query(QueryKind::kPing, raw_bytes<std::uint32_t>(0xABCDEF))), raw_bytes<std::uint32_t>(0xABCDEF));
}

TEST_F(ScriptStoreTest, AValueIsVisibleAndSetHasNoAnswer) {
  EXPECT_EQ(request(set("a", std::string("x\0y", 3))), "");
  EXPECT_EQ(clients_.request(2, get("a")), text(std::string("x\0y", 3)));
  EXPECT_EQ(clients_.request(2, get("b")), text(""));
  request(set("a", ""));
  EXPECT_EQ(clients_.request(2, get("a")), text(""));
}

TEST(ScriptStore, AStalledClientStillWakesOthers) {
  Clients clients(Limits{.reply_bytes = 64, .light_bytes = 64});
  for (const int client : {1, 2, 3}) clients.connect(client);
  for (const int waits : {1, 2}) clients.send(waits, wait({"k"}));
  const std::string value(64 - sizeof(std::uint64_t), 'x');
  clients.send(3, set("v", value) + get("v") + get("v") + set("k", "1"));
  for (const int woken : {1, 2}) EXPECT_EQ(clients.got(woken), kStop);
  EXPECT_EQ(clients.cut_off(3), "");
  for (const int client : {1, 2, 3}) clients.leave(client);
}

TEST_F(ScriptStoreTest, AddingCountsInDecimal) {
  EXPECT_EQ(request(add("n", 5)), raw_bytes<std::int64_t>(5));
  EXPECT_EQ(clients_.request(2, add("n", -7)), raw_bytes<std::int64_t>(-2));
  EXPECT_EQ(request(get("n")), text("-2"));
  request(set("n", " +40 apples"));
  EXPECT_EQ(request(add("n", 2)), raw_bytes<std::int64_t>(42));
}

TEST_F(ScriptStoreTest, CompareAndSetReturnsTheNewValue) {
  const auto compare_set = [&](const char* expected, const char* wanted) {
    return request(query(QueryKind::kCompareSet, text("k") + text(expected) + text(wanted)));
  };
  EXPECT_EQ(compare_set("old", "new"), text("old"));  // the key does not exist: the expected value is returned
  EXPECT_EQ(request(get("k")), text(""));
  EXPECT_EQ(compare_set("", "first"), text("first"));
  EXPECT_EQ(compare_set("other", "second"), text("first"));
  EXPECT_EQ(compare_set("first", "second"), text("second"));
}

TEST_F(ScriptStoreTest, KeysAreCountedListedCheckedAndDeleted) {
  request(set("a", "1") + set("b", "2"));
  EXPECT_EQ(request(query(QueryKind::kCountKeys)), raw_bytes<std::int64_t>(2));
  EXPECT_EQ(request(query(QueryKind::kCheck, list({"a", "b"}))), std::string(1, '\0'));
  EXPECT_EQ(request(query(QueryKind::kCheck, list({"a", "c"}))), std::string(1, '\1'));
  EXPECT_EQ(request(query(QueryKind::kDelete, text("a"))), raw_bytes<std::int64_t>(1));
  EXPECT_EQ(request(query(QueryKind::kDelete, text("a"))), raw_bytes<std::int64_t>(0));
  EXPECT_EQ(request(query(QueryKind::kListKeys)), raw_bytes<std::int64_t>(1) + text("b"));
}

TEST_F(ScriptStoreTest, MultiKeyQueriesAndAppend) {
  EXPECT_EQ(request(query(QueryKind::kSetMany, raw_bytes<std::uint64_t>(2) + text("a") + text("1") + text("b") + text("2"))),
            "");
  EXPECT_EQ(request(query(QueryKind::kAppend, text("b") + text("3"))), "");
  EXPECT_EQ(request(query(QueryKind::kAppend, text("c") + text("4"))), "");
  EXPECT_EQ(request(query(QueryKind::kGetMany, list({"a", "b", "c", "d"}))), text("1") + text("23") + text("4") + text(""));
}

TEST_F(ScriptStoreTest, AWaitEndsWithItsLastKey) {
  request(set("a", "1"));
  EXPECT_EQ(request(wait({"a"})), kStop);
  EXPECT_EQ(request(wait({"a", "b", "c", "b"})), "");
  clients_.send(2, set("b", "1"));
  EXPECT_EQ(clients_.got(1), "");
  clients_.send(2, add("c", 1));
  EXPECT_EQ(clients_.got(1), kStop);
}

TEST_F(ScriptStoreTest, ACanceledWaitGetsNoOtherAnswer) {
  EXPECT_EQ(request(wait({"a"})), "");
  EXPECT_EQ(request(query(QueryKind::kCancelWait)), kCanceled);
  clients_.send(2, set("a", "1"));
  EXPECT_EQ(clients_.got(1), "");
}

TEST_F(ScriptStoreTest, ADisconnectedClientIsNotAnswered) {
  clients_.send(1, wait({"a"}));
  clients_.leave(1);
  clients_.connect(1);
  clients_.send(2, set("a", "1"));
  EXPECT_EQ(clients_.got(1), "");
}

TEST_F(ScriptStoreTest, AQueueGivesEachValueToOneClient) {
  const std::string pop = query(QueryKind::kPop, text("q"));
  const std::string length = query(QueryKind::kQueueLength, text("q"));
  EXPECT_EQ(request(pop), raw_bytes<std::int64_t>(0));
  EXPECT_EQ(request(length), raw_bytes<std::int64_t>(0));
  clients_.send(2, wait({"q"}));
  clients_.send(3, wait({"q"}));
  EXPECT_EQ(request(push("q", "one")), "");
  EXPECT_EQ(clients_.got(2), kStop);
  EXPECT_EQ(clients_.got(3), "");
  request(push("q", "two"));
  EXPECT_EQ(clients_.got(3), kStop);
  EXPECT_EQ(request(length), raw_bytes<std::int64_t>(2));
  EXPECT_EQ(request(wait({"q"})), kStop);
  EXPECT_EQ(clients_.request(2, pop), raw_bytes<std::int64_t>(2) + text("one"));
  EXPECT_EQ(clients_.request(3, pop), raw_bytes<std::int64_t>(1) + text("two"));
  EXPECT_EQ(request(query(QueryKind::kCountKeys)), raw_bytes<std::int64_t>(0));
}

TEST_F(ScriptStoreTest, ABarrierOpensWithTheLastClient) {
  const std::string barrier = query(QueryKind::kBarrier, text("b") + raw_bytes<std::int64_t>(3));
  EXPECT_EQ(clients_.request(1, barrier), "");
  EXPECT_EQ(clients_.request(2, barrier), "");
  EXPECT_EQ(clients_.request(3, barrier), kStop);
  EXPECT_EQ(clients_.got(1), kStop);
  EXPECT_EQ(clients_.got(2), kStop);
}

TEST_F(ScriptStoreTest, QueriesMayArriveInPiecesOrTogether) {
  for (const char byte : set("key", "value")) clients_.send(1, {&byte, 1});
  EXPECT_EQ(request(get("key") + get("key") + get("key").substr(0, 3)), text("value") + text("value"));
  EXPECT_EQ(request(get("key").substr(3)), text("value"));
}

// ---- clients that are cut off ----

TEST_F(ScriptStoreTest, AnInvalidClientIsDisconnected) {
  for (const std::string& first :
       {query(QueryKind::kValidate, raw_bytes(kMagic + 1)), get("a"), std::string("GET / HTTP/1.1\r\n")}) {
    ScriptStore store;
    store.connected(1);
    const std::vector<Action> actions = store.received(1, first);
    ASSERT_EQ(actions.size(), 1u);
    EXPECT_TRUE(std::holds_alternative<Disconnect>(actions[0])) << first;
  }
}

TEST_F(ScriptStoreTest, AnUnknownQueryDisconnectsItsClient) {
  request(set("a", "1"));
  EXPECT_EQ(request(get("a") + "\x63" + get("a")), text("1"));
  EXPECT_EQ(clients_.cut_off(1), "query 99 is not known");
  EXPECT_EQ(request(get("a")), "");
  EXPECT_EQ(clients_.request(2, get("a")), text("1"));
  EXPECT_EQ(clients_.all_cut_off().size(), 1u);
}

TEST_F(ScriptStoreTest, AddingToTextDisconnects) {
  request(set("a", "apples"));
  EXPECT_EQ(request(add("a", 1)), "");
  EXPECT_EQ(clients_.cut_off(1), "the client sent an add for 'a', whose value is not a number");
  clients_.send(2, set("b", "9223372036854775807"));
  EXPECT_EQ(clients_.request(2, add("b", 1)), "");
  EXPECT_EQ(clients_.cut_off(2), "the sum of 'b' does not fit in 64 bits");
}

class Limited : public Test {
 protected:
  static Limits limits() {
    return {.key_bytes = 10,
            .value_bytes = 100,
            .keys_of_a_query = 5,
            .query_bytes = 400,
            .reply_bytes = 200,
            .keys = 4,
            .total_bytes = 200,
            .pending_bytes = 1000};
  }
  std::string why(const std::vector<std::string>& sent) {
    Clients clients(limits());
    clients.connect(1);
    for (const std::string& one : sent) clients.send(1, one);
    return clients.cut_off(1);
  }
};

TEST_F(Limited, LimitsSizes) {
  EXPECT_EQ(why({set("0123456789", std::string(100, 'v'))}), "");
  EXPECT_EQ(why({set("0123456789a", "v")}), "a key of 11 bytes, and at most 10 are allowed");
  EXPECT_EQ(why({set("a", std::string(101, 'v'))}), "a value of 101 bytes, and at most 100 are allowed");
  EXPECT_EQ(why({wait({"1", "2", "3", "4", "5", "6"})}), "6 keys, and at most 5 are allowed");
  EXPECT_EQ(why({query(QueryKind::kAppend, text("a") + text(std::string(60, 'v'))),
                 query(QueryKind::kAppend, text("a") + text(std::string(60, 'v')))}),
            "the value of 'a' would have more than 100 bytes");
}

TEST_F(Limited, AnExcessiveLengthIsRefusedEarly) {
  EXPECT_EQ(why({query(QueryKind::kGet, raw_bytes<std::uint64_t>(~0ULL))}),
            "a key of 18446744073709551615 bytes, and at most 10 are allowed");
  std::string pairs = raw_bytes<std::uint64_t>(5);
  for (int i = 0; i < 5; ++i) pairs += text("k") + text(std::string(90, 'v'));
  EXPECT_EQ(why({query(QueryKind::kSetMany, pairs)}), "a query of 437 bytes, and at most 400 are allowed");
}

TEST_F(Limited, LimitsTheStore) {
  EXPECT_EQ(why({set("a", std::string(90, 'v')) + set("b", std::string(90, 'v'))}), "");
  EXPECT_EQ(why({set("a", std::string(90, 'v')), set("a", std::string(100, 'v')), set("b", std::string(98, 'v'))}), "");
  EXPECT_EQ(why({set("a", std::string(99, 'v')) + set("b", std::string(100, 'v'))}), "the store is full: 1 keys, 100 bytes");
  EXPECT_EQ(why({push("a", "") + push("a", "") + set("b", "") + set("c", ""), push("a", "")}),
            "the store is full: 4 keys, 4 bytes");
  const std::string remove = query(QueryKind::kDelete, text("a"));
  EXPECT_EQ(why({set("a", std::string(100, 'v')), remove, set("b", std::string(100, 'v')), set("c", std::string(90, 'v'))}),
            "");
}

TEST_F(Limited, LimitsAnswers) {
  const std::string three = query(QueryKind::kGetMany, list({"a", "a", "a"}));
  EXPECT_EQ(why({set("a", std::string(90, 'v')), three}), "the client requests values of more than 200 bytes in one query");
}

TEST_F(Limited, LimitsTheTotalOfAllClients) {
  const std::string why_cut = "the store has more than 1000 unsent bytes for its clients, most of them for this client";
  Clients clients(limits());
  for (int client = 1; client <= 12; ++client) clients.connect(client);
  const std::string part = query(QueryKind::kSet, text("a") + raw_bytes<std::uint64_t>(100) + std::string(70, 'v'));
  for (int client = 1; client <= 10; ++client) clients.send(client, part);
  clients.send(11, part + "v");  // client 11 has 89 bytes pending, each other client has 88
  EXPECT_TRUE(clients.all_cut_off().empty());
  clients.send(12, part);
  EXPECT_EQ(clients.cut_off(11), why_cut);
  EXPECT_EQ(clients.all_cut_off().size(), 1u);
  clients.send(1, std::string(30, 'v'));
  EXPECT_EQ(clients.request(1, get("a")), text(std::string(100, 'v')));
}

TEST_F(Limited, AwaitedKeysCountAsPending) {
  Clients clients(limits());
  for (const int client : {1, 2, 3}) clients.connect(client);
  clients.send(1, wait({"0123456789"}));
  clients.send(2, wait({"x", "y"}));
  EXPECT_TRUE(clients.all_cut_off().empty());
  EXPECT_GT(clients.store().pending(), 3 * 256u);
  clients.send(3, wait({"z"}));
  EXPECT_EQ(clients.all_cut_off().size(), 1u);
  EXPECT_NE(clients.cut_off(2), "");  // client 2 waits for the most keys, so it is cut off
  clients.send(3, set("0123456789", "1") + set("z", "1"));
  EXPECT_EQ(clients.got(1), kStop);
  for (const int client : {1, 3}) clients.leave(client);
  EXPECT_EQ(clients.store().pending(), 0u);
}

// ---- the order in which clients are served ----

class Turns : public Test {
 protected:
  void SetUp() override {
    for (const int client : {1, 2, 3, 4}) clients_.connect(client);
    clients_.send(1, set("big", std::string(100, 'v')) + set("small", "v"));
  }
  static constexpr std::size_t kAnswer = 100 + sizeof(std::uint64_t);

  Clients clients_{Limits{.pending_bytes = 400, .light_bytes = 50}};
};

TEST_F(Turns, LargeAnswersDoNotDelayOthers) {
  std::string many;
  for (int i = 0; i < 5; ++i) many += get("big");
  clients_.send_unread(1, many);
  EXPECT_EQ(clients_.got(1), "");  // the query waits for its turn
  EXPECT_FALSE(clients_.store().is_served(1));
  EXPECT_EQ(clients_.store().next_turn(), 1);
  clients_.send_unread(2, get("small"));
  EXPECT_EQ(clients_.got(2), text("v"));
  clients_.take_turn();
  EXPECT_EQ(clients_.got(1).size(), kAnswer);  // in each turn the store sends a client one large answer
  clients_.send_unread(2, get("big"));
  clients_.take_turn();
  clients_.take_turn();
  EXPECT_EQ(clients_.got(1).size(), kAnswer);
  EXPECT_EQ(clients_.got(2).size(), kAnswer);
  clients_.send(3, get("big"));
  EXPECT_EQ(clients_.got(1).size(), 3 * kAnswer);
  EXPECT_TRUE(clients_.all_cut_off().empty());
}

TEST_F(Turns, AStalledClientGetsOneLargeAnswer) {
  clients_.send_unread(1, get("big") + get("big"));
  clients_.take_turn_unread();
  EXPECT_EQ(clients_.got(1).size(), kAnswer);
  EXPECT_EQ(clients_.store().next_turn(), std::nullopt);
  EXPECT_FALSE(clients_.store().is_served(1));
  clients_.read(1, kAnswer);
  EXPECT_EQ(clients_.store().next_turn(), 1);
  clients_.take_turn();
  EXPECT_EQ(clients_.got(1).size(), kAnswer);
  EXPECT_TRUE(clients_.store().is_served(1));
}

TEST_F(Turns, WithoutSpaceAStalledClientIsDisconnected) {
  for (const int client : {1, 2}) {
    clients_.send_unread(client, get("big"));
    clients_.take_turn_unread();
  }
  EXPECT_LE(clients_.store().pending(), 400u);
  clients_.send_unread(3, get("big"));
  EXPECT_TRUE(clients_.store().lacks_space());
  clients_.send_unread(4, get("small"));
  EXPECT_EQ(clients_.got(4), text("v"));
  clients_.read(1, 60);
  clients_.read(4, kAnswer);
  clients_.free_space();
  EXPECT_NE(clients_.cut_off(2), "");
  EXPECT_EQ(clients_.all_cut_off().size(), 1u);
  EXPECT_EQ(clients_.store().next_turn(), 3);
  clients_.take_turn();
  EXPECT_EQ(clients_.got(3).size(), kAnswer);
}

// ---- arbitrary bytes ----

// Three clients send random queries, most of them valid. One store gets each query as a whole, and another store gets it in
// several chunks. Both stores must send the same answers.
TEST(ScriptStoreFuzz, PiecesGiveTheSameAnswers) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto below = [&](unsigned limit) { return static_cast<unsigned>(random() % limit); };
    const auto key = [&] { return std::string(1 + below(2), static_cast<char>('a' + below(3))); };
    const auto some_bytes = [&] {
      const bool number = below(3) != 0;
      return number ? std::to_string(static_cast<int>(below(2000)) - 1000)
                    : std::string(below(40), static_cast<char>(below(256)));
    };
    const auto whole = [&] {
      const auto kind = static_cast<QueryKind>(below(19));
      switch (kind) {
        case QueryKind::kValidate:
          return validate();
        case QueryKind::kPing:
          return query(kind, raw_bytes<std::uint32_t>(below(9)));
        case QueryKind::kSet:
        case QueryKind::kAppend:
        case QueryKind::kPush:
          return query(kind, text(key()) + text(some_bytes()));
        case QueryKind::kCompareSet:
          return query(kind, text(key()) + text(some_bytes()) + text(some_bytes()));
        case QueryKind::kAdd:
        case QueryKind::kBarrier:
          return query(kind, text(key()) + raw_bytes<std::int64_t>(below(5)));
        case QueryKind::kCheck:
        case QueryKind::kWait:
        case QueryKind::kGetMany:
          return query(kind, list({key(), key(), key()}));
        case QueryKind::kSetMany:
          return query(kind, raw_bytes<std::uint64_t>(1) + text(key()) + text(some_bytes()));
        case QueryKind::kGet:
        case QueryKind::kDelete:
        case QueryKind::kPop:
        case QueryKind::kQueueLength:
          return query(kind, text(key()));
        case QueryKind::kCountKeys:
        case QueryKind::kCancelWait:
        case QueryKind::kListKeys:
          return query(kind);
      }
      return std::string();
    };
    const Limits limits{.key_bytes = 20,
                        .value_bytes = 200,
                        .keys_of_a_query = 8,
                        .query_bytes = 400,
                        .keys = 40,
                        .total_bytes = 2000,
                        .light_bytes = 60};
    Clients in_one(limits);
    Clients in_pieces(limits);
    for (const int client : {1, 2, 3}) {
      in_one.connect(client);
      in_pieces.connect(client);
    }
    for (int step = 0; step < 300; ++step) {
      const int client = 1 + static_cast<int>(below(3));
      std::string sent = whole();
      if (below(25) == 0 && !sent.empty()) sent[below(static_cast<unsigned>(sent.size()))] = static_cast<char>(below(256));
      if (below(100) == 0) sent.resize(below(static_cast<unsigned>(sent.size()) + 1));
      in_one.send(client, sent);
      for (std::size_t at = 0; at < sent.size();) {
        const std::size_t size = 1 + below(12);
        in_pieces.send(client, std::string_view(sent).substr(at, size));
        at += size;
      }
      ASSERT_EQ(in_one.all_got(), in_pieces.all_got()) << "step " << step;
      ASSERT_EQ(in_one.all_cut_off(), in_pieces.all_cut_off()) << "step " << step;
      if (below(40) == 0 || !in_one.cut_off(client).empty()) {
        in_one.leave(client);
        in_pieces.leave(client);
        in_one.connect(client);
        in_pieces.connect(client);
      }
    }
  }
}

}  // namespace
}  // namespace ddprun::script_store
