// The store's semantics, operation by operation, as in c10d's HashStore and TCPStore.
#include "rendezvous/store/store.hpp"

#include <gtest/gtest.h>

#include <random>

namespace ddprun {
namespace {

using channel::StoreReply;
using channel::StoreRequest;
using Op = StoreRequest::Op;
using Status = StoreReply::Status;
using std::chrono::milliseconds;

class StoreTest : public testing::Test {
 protected:
  static StoreRequest request(Op op, std::vector<std::string> keys) {
    StoreRequest made;
    made.op = op;
    made.keys = std::move(keys);
    return made;
  }
  std::vector<Store::Answer> ask(StoreRequest asked, int client = 0) {
    asked.id = ++last_id_;
    return store_.handle(client, asked, now_);
  }
  StoreReply ask_one(const StoreRequest& asked) {
    auto answers = ask(asked);
    EXPECT_EQ(answers.size(), 1u);
    return answers.empty() ? StoreReply{} : answers.front().reply;
  }
  std::vector<Store::Answer> set(const std::string& key, const std::string& value, int client = 0) {
    StoreRequest asked = request(Op::kSet, {key});
    asked.value = value;
    return ask(asked, client);
  }
  StoreReply add(const std::string& key, std::int64_t amount) {
    StoreRequest asked = request(Op::kAdd, {key});
    asked.amount = amount;
    return ask_one(asked);
  }
  StoreReply compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
    StoreRequest asked = request(Op::kCompareSet, {key});
    asked.expected = expected;
    asked.value = desired;
    return ask_one(asked);
  }
  StoreRequest waiting(Op op, std::vector<std::string> keys, std::int64_t timeout_ms) {
    StoreRequest asked = request(op, std::move(keys));
    asked.timeout_ms = timeout_ms;
    return asked;
  }

  Store store_;
  Store::TimePoint now_{};
  std::uint64_t last_id_ = 0;
};

TEST_F(StoreTest, GetAnswersWhatWasSetBinaryIncluded) {
  const std::string value("\0\xff\n", 3);
  set("key", value);
  EXPECT_EQ(ask_one(request(Op::kGet, {"key"})).value, value);
  set("key", "");
  const StoreReply reply = ask_one(request(Op::kTryGet, {"key"}));
  EXPECT_EQ(reply.status, Status::kOk);
  EXPECT_EQ(reply.value, "");
}

TEST_F(StoreTest, TryGetDoesNotWait) {
  EXPECT_EQ(ask_one(request(Op::kTryGet, {"absent"})).status, Status::kNotFound);
}

TEST_F(StoreTest, GetWaitsUntilTheKeyIsSet) {
  EXPECT_TRUE(ask(waiting(Op::kGet, {"key"}, -1), 7).empty());
  const auto answers = set("key", "v", 3);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].client, 3);  // the setter's answer comes first
  EXPECT_EQ(answers[1].client, 7);
  EXPECT_EQ(answers[1].reply.id, 1u);
  EXPECT_EQ(answers[1].reply.value, "v");
}

TEST_F(StoreTest, WaitNeedsAllKeysAndAnswersOnce) {
  EXPECT_TRUE(ask(waiting(Op::kWait, {"a", "b", "a"}, -1), 1).empty());
  EXPECT_EQ(set("a", "1").size(), 1u);
  EXPECT_EQ(set("b", "1").size(), 2u);
  EXPECT_EQ(set("b", "2").size(), 1u);
}

TEST_F(StoreTest, AddAndCompareSetWakeWaitersToo) {
  ask(waiting(Op::kGet, {"n"}, -1), 1);
  StoreRequest asked = request(Op::kAdd, {"n"});
  asked.amount = 5;
  const auto answers = ask(asked);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].reply.value, "5");

  ask(waiting(Op::kWait, {"c"}, -1), 1);
  StoreRequest compare = request(Op::kCompareSet, {"c"});
  compare.value = "x";
  EXPECT_EQ(ask(compare).size(), 2u);
}

TEST_F(StoreTest, WaitingEndsAtItsDeadline) {
  EXPECT_FALSE(store_.next_deadline());
  ask(waiting(Op::kGet, {"late"}, 100), 1);
  ask(waiting(Op::kWait, {"later"}, 50), 2);
  ASSERT_EQ(store_.next_deadline(), now_ + milliseconds(50));
  EXPECT_TRUE(store_.expire(now_ + milliseconds(49)).empty());
  const auto answers = store_.expire(now_ + milliseconds(100));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].client, 2);  // in the order of the deadlines
  EXPECT_EQ(answers[1].client, 1);
  EXPECT_EQ(answers[0].reply.status, Status::kTimeout);
  EXPECT_NE(answers[0].reply.message.find("later"), std::string::npos);
  EXPECT_FALSE(store_.next_deadline());
  EXPECT_EQ(set("late", "v").size(), 1u);
}

TEST_F(StoreTest, ZeroTimeoutAnswersAtOnceAndHugeOnesNever) {
  EXPECT_EQ(ask_one(waiting(Op::kGet, {"k"}, 0)).status, Status::kTimeout);
  EXPECT_TRUE(ask(waiting(Op::kGet, {"k"}, INT64_MAX)).empty());
  EXPECT_FALSE(store_.next_deadline());
}

TEST_F(StoreTest, AddStartsAtZeroAndStoresDecimalText) {
  EXPECT_EQ(add("n", 3).number, 3);
  EXPECT_EQ(add("n", -5).number, -2);
  EXPECT_EQ(ask_one(request(Op::kGet, {"n"})).value, "-2");
  set("n", "40");
  EXPECT_EQ(add("n", 2).number, 42);
}

TEST_F(StoreTest, AddRefusesWhatIsNoNumberAndOverflow) {
  set("text", "4x");
  EXPECT_EQ(add("text", 1).status, Status::kError);
  EXPECT_EQ(ask_one(request(Op::kGet, {"text"})).value, "4x");
  add("big", INT64_MAX);
  EXPECT_EQ(add("big", 1).status, Status::kError);
  EXPECT_EQ(add("big", 0).number, INT64_MAX);
}

TEST_F(StoreTest, CompareSet) {
  EXPECT_EQ(compare_set("k", "expected", "new").value, "expected");  // absent: the expected value comes back
  EXPECT_EQ(ask_one(request(Op::kCheck, {"k"})).number, 0);
  EXPECT_EQ(compare_set("k", "", "one").value, "one");  // absent and nothing expected: set
  EXPECT_EQ(compare_set("k", "wrong", "two").value, "one");
  EXPECT_EQ(compare_set("k", "one", "two").value, "two");
}

TEST_F(StoreTest, DeleteCheckAndCount) {
  set("a", "1");
  set("b", "2");
  EXPECT_EQ(ask_one(request(Op::kNumKeys, {})).number, 2);
  EXPECT_EQ(ask_one(request(Op::kCheck, {"a", "b"})).number, 1);
  EXPECT_EQ(ask_one(request(Op::kDelete, {"a"})).number, 1);
  EXPECT_EQ(ask_one(request(Op::kDelete, {"a"})).number, 0);
  EXPECT_EQ(ask_one(request(Op::kCheck, {"a", "b"})).number, 0);
  EXPECT_EQ(ask_one(request(Op::kNumKeys, {})).number, 1);
}

TEST_F(StoreTest, ALostClientIsNotAnswered) {
  ask(waiting(Op::kGet, {"k"}, 100), 1);
  store_.forget(1);
  EXPECT_FALSE(store_.next_deadline());
  EXPECT_EQ(set("k", "v").size(), 1u);
}

TEST_F(StoreTest, ANewRoundStartsEmpty) {
  set("k", "v");
  ask(waiting(Op::kGet, {"other"}, 100), 1);
  store_.clear();
  EXPECT_EQ(ask_one(request(Op::kNumKeys, {})).number, 0);
  EXPECT_FALSE(store_.next_deadline());
}

TEST_F(StoreTest, LimitsAreKeptAndNothingChanges) {
  store_ = Store({.key_bytes = 4, .value_bytes = 8, .total_bytes = 20, .keys = 2, .waiters_per_client = 1});
  EXPECT_EQ(ask_one(request(Op::kTryGet, {"12345"})).status, Status::kError);
  EXPECT_EQ(set("a", "123456789")[0].reply.status, Status::kError);
  EXPECT_EQ(set("a", "12345678")[0].reply.status, Status::kOk);
  EXPECT_EQ(set("b", "12345678")[0].reply.status, Status::kOk);
  EXPECT_EQ(set("c", "")[0].reply.status, Status::kError);  // a third key
  EXPECT_EQ(set("b", "1")[0].reply.status, Status::kOk);
  EXPECT_TRUE(ask(waiting(Op::kGet, {"x"}, -1), 1).empty());
  EXPECT_EQ(ask(waiting(Op::kGet, {"y"}, -1), 1).at(0).reply.status, Status::kError);
  EXPECT_EQ(ask_one(request(Op::kGet, {})).status, Status::kError);
  EXPECT_EQ(ask_one(request(Op::kSet, {"a", "b"})).status, Status::kError);
}

// Any sequence: every request gets exactly one reply, immediately, when it is woken, or at its deadline.
TEST_F(StoreTest, EveryRequestIsAnsweredOnce) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    store_ = Store();
    std::map<std::uint64_t, int> answered;
    const auto count = [&](const std::vector<Store::Answer>& answers) {
      for (const auto& answer : answers) ++answered[answer.reply.id];
    };
    last_id_ = 0;
    for (int i = 0; i < 400; ++i) {
      StoreRequest asked = request(static_cast<Op>(random() % 9), {"k" + std::to_string(random() % 5)});
      if (asked.op == Op::kWait || asked.op == Op::kCheck) asked.keys.push_back("k" + std::to_string(random() % 5));
      asked.value = std::to_string(random() % 3);
      asked.timeout_ms = static_cast<std::int64_t>(random() % 50);
      count(ask(asked, static_cast<int>(random() % 4)));
      now_ += milliseconds(random() % 10);
      count(store_.expire(now_));
    }
    count(store_.expire(now_ + milliseconds(1000)));
    for (std::uint64_t id = 1; id <= last_id_; ++id) EXPECT_EQ(answered[id], 1) << "request " << id;
  }
}

}  // namespace
}  // namespace ddprun
