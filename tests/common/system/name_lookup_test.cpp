// Tests that a name lookup does not block its caller.
#include "common/system/name_lookup.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

namespace ddprun {
namespace {

class NameLookupTest : public testing::Test {
 protected:
  // Runs the functions posted to the event loop in this thread, until done() returns true.
  template <class Done>
  void run_until(Done done) {
    std::unique_lock lock(mutex_);
    while (!done()) {
      ASSERT_TRUE(posted_any_.wait_for(lock, std::chrono::seconds(60), [this] { return !posted_.empty(); }));
      const auto act = std::move(posted_.front());
      posted_.pop_front();
      lock.unlock();
      act();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable posted_any_;
  std::deque<std::function<void()>> posted_;
  NameLookup::Post post_ = [this](std::function<void()> act) {
    const std::lock_guard lock(mutex_);
    posted_.push_back(std::move(act));
    posted_any_.notify_one();
  };
};

TEST_F(NameLookupTest, EveryCallerGetsTheAddresses) {
  NameLookup names(post_);
  std::vector<NameAnswer> answers;
  for (int i = 0; i < 3; ++i) names.query("localhost", [&](const NameAnswer& answer) { answers.push_back(answer); });
  run_until([&] { return answers.size() == 3; });
  ASSERT_FALSE(answers.front().addresses.empty()) << answers.front().error;
  EXPECT_TRUE(answers.front().addresses.front() == "127.0.0.1" || answers.front().addresses.front() == "::1");
  EXPECT_EQ(answers.back().addresses, answers.front().addresses);
  names.query("localhost", [&](const NameAnswer& answer) { answers.push_back(answer); });  // a fourth query for the same name
  run_until([&] { return answers.size() == 4; });
}

TEST_F(NameLookupTest, AnUnknownNameHasAReason) {
  NameLookup names(post_);
  std::optional<NameAnswer> answer;
  names.query("no-such-host.invalid", [&](const NameAnswer& one) { answer = one; });
  run_until([&] { return answer.has_value(); });
  EXPECT_TRUE(answer->addresses.empty());
  EXPECT_NE(answer->error, "");
}

TEST_F(NameLookupTest, DestroyedLookupCallsNothing) {
  bool called = false;
  {
    NameLookup names(post_);
    names.query("localhost", [&](const NameAnswer&) { called = true; });
    std::unique_lock lock(mutex_);
    posted_any_.wait_for(lock, std::chrono::seconds(60), [this] { return !posted_.empty(); });
  }
  for (const auto& act : posted_) act();
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace ddprun
