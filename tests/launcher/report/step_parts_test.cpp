// Tests the parts of the step time (data, forward, backward, ...), which are computed from lines of metrics.jsonl.
#include "launcher/report/step_parts.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

std::string step_line(int step, double forward, double waiting) {
  const ReportJson line{{"event", "step"},       {"step", step},          {"loss", 1.0},
                        {"data_ms", 1},          {"forward_ms", forward}, {"backward_ms", 4},
                        {"waiting_ms", waiting}, {"optimizer_ms", 2},     {"rest_ms", 0}};
  return line.dump() + "\n";
}

std::string parts_text(const std::string& lines) {
  test::TemporaryFolder folder;
  std::ofstream(folder / "metrics.jsonl") << lines;
  return step_parts_of(folder / "metrics.jsonl").text();
}

TEST(StepParts, AreWeightedByTheStepsOfALine) {
  const std::string lines = step_line(1, 93, 0) + "{\"event\":\"eval\",\"step\":1}\n" + step_line(10, 2, 1);
  EXPECT_EQ(parts_text(lines),
            "19 ms: data 5 %, forward 58 %, backward 21 %, waiting 5 %, optimizer 11 %, rest 0 % in steps 1 to 10");
}

TEST(StepParts, UseTheNewestLines) {
  std::string lines;
  for (int step = 1; step <= 5000; ++step) lines += step_line(step, step <= 4900 ? 1000 : 2, 1);
  EXPECT_EQ(parts_text(lines),
            "10 ms: data 10 %, forward 20 %, backward 40 %, waiting 10 %, optimizer 20 %, rest 0 % in steps 4,901 to 5,000");
}

// A line may contain no parts of the step time. On a GPU no line contains them. If rank 0 was lost before it wrote a line, its
// replacement writes the line. But the replacement has not executed that step, so it has not measured the parts.
TEST(StepParts, UnknownPartsAreLeftOut) {
  EXPECT_EQ(parts_text(""), "");
  EXPECT_EQ(parts_text("{\"event\":\"step\",\"step\":1,\"loss\":1}\n"), "");
  EXPECT_EQ(parts_text("broken\n[1]\n" + step_line(5, 2, 1) + "{\"event\":\"st"),
            "10 ms: data 10 %, forward 20 %, backward 40 %, waiting 10 %, optimizer 20 %, rest 0 % in steps 1 to 5");
  EXPECT_EQ(step_parts_of("/nowhere/metrics.jsonl").text(), "");
}

TEST(StepParts, PeakMemoryIsFromTheNewestLine) {
  StepParts steps;
  EXPECT_EQ(steps.memory_text(), "");
  for (const char* line : {R"({"event":"step","step":1,"peak_memory_bytes":1048576,"largest_peak_memory_bytes":2097152})",
                           R"({"event":"step","step":2,"peak_memory_bytes":2097152,"largest_peak_memory_bytes":1468006400})",
                           R"({"event":"step","step":3})", R"({"event":"eval","step":3,"peak_memory_bytes":5000000})"}) {
    steps.take(ReportJson::parse(line));
  }
  EXPECT_EQ(steps.memory_text(), "2 MiB on rank 0, 1,400 MiB on the rank with the highest peak");
}

}  // namespace
}  // namespace ddprun
