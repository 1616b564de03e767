// Tests how metrics are sent by name. A message has separate fields for loss, lr and samples_per_s, and a limited number of
// metrics with other names.
#include <gtest/gtest.h>

#include <string>

#include "common/channel/named_metrics.hpp"

namespace ddprun::channel {
namespace {

TEST(NamedMetrics, NewestValueOfEachNameIsSent) {
  NamedMetrics figures;
  figures.set("loss", 2);
  figures.set("loss", 1);
  figures.set("perplexity", 3);
  Progress message;
  figures.add_to(message);
  EXPECT_EQ(message.loss, 1);
  ASSERT_EQ(message.figures.size(), 1);
  EXPECT_EQ(message.figures[0].name, "perplexity");
  figures.clear();
  Progress next;
  figures.add_to(next);
  EXPECT_FALSE(next.loss);
  EXPECT_TRUE(next.figures.empty());
}

TEST(NamedMetrics, ExtraNamesAreDropped) {
  NamedMetrics figures;
  for (std::size_t i = 0; i <= kMaxMetrics; ++i) figures.set("metric " + std::to_string(i), 1);
  figures.set(std::string(1000, 'x'), 1);
  Progress message{.step = 1};
  figures.add_to(message);
  EXPECT_EQ(message.figures.size(), kMaxMetrics);
  EXPECT_FALSE(encode(FromWorker{message}).empty());
}

}  // namespace
}  // namespace ddprun::channel
