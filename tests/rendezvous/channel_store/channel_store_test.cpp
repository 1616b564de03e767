// Tests each operation of the workers' key-value store. The expected semantics are the same as for HashStore and TCPStore in
// c10d.
#include "rendezvous/channel_store/channel_store.hpp"

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
  std::vector<Store::Answer> send(StoreRequest message, int client = 0) {
    message.id = ++last_id_;
    return store_.handle(client, message, now_);
  }
  StoreReply send_one(const StoreRequest& message) {
    auto answers = send(message);
    EXPECT_EQ(answers.size(), 1u);
    return answers.empty() ? StoreReply{} : answers.front().reply;
  }
  std::vector<Store::Answer> set(const std::string& key, const std::string& value, int client = 0) {
    StoreRequest message = request(Op::kSet, {key});
    message.value = value;
    return send(message, client);
  }
  StoreReply add(const std::string& key, std::int64_t amount) {
    StoreRequest message = request(Op::kAdd, {key});
    message.amount = amount;
    return send_one(message);
  }
  StoreReply compare_set(const std::string& key, const std::string& expected, const std::string& desired) {
    StoreRequest message = request(Op::kCompareSet, {key});
    message.expected = expected;
    message.value = desired;
    return send_one(message);
  }
  StoreRequest waiting(Op op, std::vector<std::string> keys, std::int64_t timeout_ms) {
    StoreRequest message = request(op, std::move(keys));
    message.timeout_ms = timeout_ms;
    return message;
  }

  Store store_;
  Store::TimePoint now_{};
  std::uint64_t last_id_ = 0;
};

TEST_F(StoreTest, GetReturnsBinaryValues) {
  const std::string value("\0\xff\n", 3);
  set("key", value);
  EXPECT_EQ(send_one(request(Op::kGet, {"key"})).value, value);
  set("key", "");
  const StoreReply reply = send_one(request(Op::kTryGet, {"key"}));
  EXPECT_EQ(reply.status, Status::kOk);
  EXPECT_EQ(reply.value, "");
}

TEST_F(StoreTest, TryGetDoesNotWait) {
  EXPECT_EQ(send_one(request(Op::kTryGet, {"absent"})).status, Status::kNotFound);
}

TEST_F(StoreTest, GetWaitsUntilTheKeyIsSet) {
  EXPECT_TRUE(send(waiting(Op::kGet, {"key"}, -1), 7).empty());
  const auto answers = set("key", "v", 3);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].client, 3);  // the reply to the client that set the key comes first
  EXPECT_EQ(answers[1].client, 7);
  EXPECT_EQ(answers[1].reply.id, 1u);
  EXPECT_EQ(answers[1].reply.value, "v");
}

TEST_F(StoreTest, WaitNeedsAllKeysAndAnswersOnce) {
  EXPECT_TRUE(send(waiting(Op::kWait, {"a", "b", "a"}, -1), 1).empty());
  EXPECT_EQ(set("a", "1").size(), 1u);
  EXPECT_EQ(set("b", "1").size(), 2u);
  EXPECT_EQ(set("b", "2").size(), 1u);
}

TEST_F(StoreTest, AddAndCompareSetWakeWaiters) {
  send(waiting(Op::kGet, {"n"}, -1), 1);
  StoreRequest message = request(Op::kAdd, {"n"});
  message.amount = 5;
  const auto answers = send(message);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[1].reply.value, "5");

  send(waiting(Op::kWait, {"c"}, -1), 1);
  StoreRequest compare = request(Op::kCompareSet, {"c"});
  compare.value = "x";
  EXPECT_EQ(send(compare).size(), 2u);
}

TEST_F(StoreTest, WaitingEndsAtItsDeadline) {
  EXPECT_FALSE(store_.next_deadline());
  send(waiting(Op::kGet, {"late"}, 100), 1);
  send(waiting(Op::kWait, {"later"}, 50), 2);
  ASSERT_EQ(store_.next_deadline(), now_ + milliseconds(50));
  EXPECT_TRUE(store_.expire(now_ + milliseconds(49)).empty());
  const auto answers = store_.expire(now_ + milliseconds(100));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].client, 2);  // timeout replies are sorted by deadline
  EXPECT_EQ(answers[1].client, 1);
  EXPECT_EQ(answers[0].reply.status, Status::kTimeout);
  EXPECT_NE(answers[0].reply.message.find("later"), std::string::npos);
  EXPECT_FALSE(store_.next_deadline());
  EXPECT_EQ(set("late", "v").size(), 1u);
}

TEST_F(StoreTest, ZeroTimeoutIsImmediateAndHugeOnesNeverExpire) {
  EXPECT_EQ(send_one(waiting(Op::kGet, {"k"}, 0)).status, Status::kTimeout);
  EXPECT_TRUE(send(waiting(Op::kGet, {"k"}, INT64_MAX)).empty());
  EXPECT_FALSE(store_.next_deadline());
}

TEST_F(StoreTest, AddStartsAtZeroAndStoresDecimalText) {
  EXPECT_EQ(add("n", 3).number, 3);
  EXPECT_EQ(add("n", -5).number, -2);
  EXPECT_EQ(send_one(request(Op::kGet, {"n"})).value, "-2");
  set("n", "40");
  EXPECT_EQ(add("n", 2).number, 42);
}

TEST_F(StoreTest, AddRefusesNonNumbersAndOverflow) {
  set("text", "4x");
  EXPECT_EQ(add("text", 1).status, Status::kError);
  EXPECT_EQ(send_one(request(Op::kGet, {"text"})).value, "4x");
  add("big", INT64_MAX);
  EXPECT_EQ(add("big", 1).status, Status::kError);
  EXPECT_EQ(add("big", 0).number, INT64_MAX);
}

TEST_F(StoreTest, CompareSet) {
  EXPECT_EQ(compare_set("k", "expected", "new").value, "expected");  // the key is absent: the expected value is returned
  EXPECT_EQ(send_one(request(Op::kCheck, {"k"})).number, 0);
  EXPECT_EQ(compare_set("k", "", "one").value, "one");  // the key is absent and the expected value is empty: it is set
  EXPECT_EQ(compare_set("k", "wrong", "two").value, "one");
  EXPECT_EQ(compare_set("k", "one", "two").value, "two");
}

TEST_F(StoreTest, DeleteCheckAndCount) {
  set("a", "1");
  set("b", "2");
  EXPECT_EQ(send_one(request(Op::kNumKeys, {})).number, 2);
  EXPECT_EQ(send_one(request(Op::kCheck, {"a", "b"})).number, 1);
  EXPECT_EQ(send_one(request(Op::kDelete, {"a"})).number, 1);
  EXPECT_EQ(send_one(request(Op::kDelete, {"a"})).number, 0);
  EXPECT_EQ(send_one(request(Op::kCheck, {"a", "b"})).number, 0);
  EXPECT_EQ(send_one(request(Op::kNumKeys, {})).number, 1);
}

TEST_F(StoreTest, LostClientIsNotAnswered) {
  send(waiting(Op::kGet, {"k"}, 100), 1);
  store_.forget(1);
  EXPECT_FALSE(store_.next_deadline());
  EXPECT_EQ(set("k", "v").size(), 1u);
}

TEST_F(StoreTest, NewRoundStartsEmpty) {
  set("k", "v");
  send(waiting(Op::kGet, {"other"}, 100), 1);
  store_.clear();
  EXPECT_EQ(send_one(request(Op::kNumKeys, {})).number, 0);
  EXPECT_FALSE(store_.next_deadline());
}

TEST_F(StoreTest, RequestsOverALimitChangeNothing) {
  store_ = Store({.key_bytes = 4, .value_bytes = 8, .total_bytes = 20, .keys = 2, .waiters_per_client = 1});
  EXPECT_EQ(send_one(request(Op::kTryGet, {"12345"})).status, Status::kError);
  EXPECT_EQ(set("a", "123456789")[0].reply.status, Status::kError);
  EXPECT_EQ(set("a", "12345678")[0].reply.status, Status::kOk);
  EXPECT_EQ(set("b", "12345678")[0].reply.status, Status::kOk);
  EXPECT_EQ(set("c", "")[0].reply.status, Status::kError);  // a third key exceeds the limit
  EXPECT_EQ(set("b", "1")[0].reply.status, Status::kOk);
  EXPECT_TRUE(send(waiting(Op::kGet, {"x"}, -1), 1).empty());
  EXPECT_EQ(send(waiting(Op::kGet, {"y"}, -1), 1).at(0).reply.status, Status::kError);
  EXPECT_EQ(send_one(request(Op::kGet, {})).status, Status::kError);
  EXPECT_EQ(send_one(request(Op::kSet, {"a", "b"})).status, Status::kError);
}

// Sends random requests. Each request must get exactly one reply: immediately, when its key is set, or at its deadline.
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
      StoreRequest message = request(static_cast<Op>(random() % 9), {"k" + std::to_string(random() % 5)});
      if (message.op == Op::kWait || message.op == Op::kCheck) message.keys.push_back("k" + std::to_string(random() % 5));
      message.value = std::to_string(random() % 3);
      message.timeout_ms = static_cast<std::int64_t>(random() % 50);
      count(send(message, static_cast<int>(random() % 4)));
      now_ += milliseconds(random() % 10);
      count(store_.expire(now_));
    }
    count(store_.expire(now_ + milliseconds(1000)));
    for (std::uint64_t id = 1; id <= last_id_; ++id) EXPECT_EQ(answered[id], 1) << "request " << id;
  }
}

}  // namespace
}  // namespace ddprun
