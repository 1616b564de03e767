// Tests how ddprun finds the progress of a program in the lines that it prints: the formats that programs use, and the cases
// in which no percentage is known.
#include "launcher/scheduler_status/printed_progress.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

namespace ddprun::test {
namespace {

struct Printed {
  const char* output;
  std::int64_t step, total;
};

void PrintTo(const Printed& printed, std::ostream* out) {
  *out << printed.output;
}

channel::Progress progress_of(std::string_view output) {
  PrintedProgress printed;
  EXPECT_TRUE(printed.feed(Stream::kStdout, output)) << output;
  return printed.progress().value_or(channel::Progress{.step = -1});
}

class PrintedForms : public testing::TestWithParam<Printed> {};

TEST_P(PrintedForms, AreRead) {
  const channel::Progress progress = progress_of(GetParam().output);
  EXPECT_EQ(progress.step, GetParam().step);
  EXPECT_EQ(progress.steps_total, GetParam().total);
}

INSTANTIATE_TEST_SUITE_P(PrintedProgress, PrintedForms,
                         testing::Values(Printed{"Epoch [2/5], Step [100/600], Loss: 0.4\n", 700, 3000},  //
                                         Printed{"Epoch: 2/10\n", 1, 10},                                 //
                                         Printed{"epoch 0 of 4\nepoch 3 of 4\n", 3, 4},                   // numbers start at 0
                                         Printed{"step 450/1000 loss 0.23\n", 450, 1000},                 //
                                         Printed{"iter 7: loss 1.5\n", 7, 0},         // the total is not known
                                         Printed{"\x1b[32mStep\x1b[0m 3/4\n", 3, 4},  // colours
                                         Printed{"Epoch 2/10:  45%|####5     | 45/100 [00:10<00:12, 45.00it/s]\r", 145, 1000},
                                         Printed{"Epoch 1/2\n 50%|##  | 5/10 [00:01<00:01]\r 60%|##  | 6/10 [00:01<00:01]\r", 6,
                                                 20},
                                         // The bar may count the batches of one epoch only, so the total is unknown.
                                         Printed{" 45%|####5     | 450/1000 [00:10<00:12, 45.00it/s, loss=0.2]\r", 450, 0},
                                         Printed{"Epoch 2:  45%|####5     | 450/1000 [00:10<00:12]\r", 450, 0},
                                         Printed{"Epoch 2\nstep 4/10\n", 4, 0}));

TEST(PrintedProgress, ReadsMetrics) {
  const channel::Progress progress =
      progress_of("{'loss': 0.2347, 'learning_rate': 1e-05, 'epoch': 0.5, 'eval_accuracy': 0.9}\n");
  EXPECT_EQ(progress.loss, 0.2347);
  EXPECT_EQ(progress.lr, 1e-05);
  EXPECT_EQ(progress.figures, (MetricList{{"eval_accuracy", 0.9}}));
  EXPECT_EQ(progress.steps_total, 0);  // 'epoch': 0.5 is not a count
  EXPECT_EQ(progress_of("train_loss=1.25 gloss=3 lossy 4\n").figures, (MetricList{{"train_loss", 1.25}}));
}

TEST(PrintedProgress, IgnoresOtherLines) {
  PrintedProgress printed;
  for (const char* line :
       {"Loading 3/4 shards\n", "stepping 3/4\n", "step 5/4\n", "step -1/4\n", "step 12k/4\n", "loss: nan\n", "epochs 3\n",
        "99%| no bar\n", "%|\n", "step 99999999999999999999/4\n", "\n", "epoch\n", "loss\n", "\x1b[\n"}) {
    EXPECT_FALSE(printed.feed(Stream::kStdout, line)) << line;
  }
  EXPECT_FALSE(printed.progress().has_value());
}

TEST(PrintedProgress, LinesMayArriveInPiecesOnTwoStreams) {
  PrintedProgress printed;
  EXPECT_FALSE(printed.feed(Stream::kStdout, "step 1"));
  EXPECT_FALSE(printed.feed(Stream::kStderr, "epoch 2/"));
  EXPECT_TRUE(printed.feed(Stream::kStderr, "2\n"));
  EXPECT_TRUE(printed.feed(Stream::kStdout, "0/20\nstep"));
  EXPECT_EQ(printed.progress()->step, 30);
  EXPECT_EQ(printed.progress()->steps_total, 40);
}

TEST(PrintedProgress, LongLinesAreIgnored) {
  PrintedProgress printed;
  const std::string filler(PrintedProgress::kMaxLine, 'x');
  EXPECT_FALSE(printed.feed(Stream::kStdout, filler));
  EXPECT_FALSE(printed.feed(Stream::kStdout, " step 1/2\n"));
  EXPECT_TRUE(printed.feed(Stream::kStdout, "step 1/2\n"));
}

}  // namespace
}  // namespace ddprun::test
