// Tests the file requeues.json, and the facts that a requeue decision reads from report.json.
#include "launcher/submit/slurm/requeue_record.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

constexpr const char* kReport = R"({"checkpoints": {"published": 12, "latest": {"save_s": 1.5}},
  "invocations": [{"slurm": {"job": "17", "restarts": 1}}, {"slurm": {"job": "17", "restarts": 2}}],
  "rounds": [{"first_cause": {"cause": "exit_code", "exit_code": 85}}], "exit": {"code": 85}})";

TEST(RequeueRecord, IsReadBack) {
  const RequeueRecord record{
      .job = "slurm 17_3", .failures = 2, .timeouts = 1, .requeues = 5, .published = 9, .newest_step = 400};
  EXPECT_EQ(parse_requeue_record(requeue_text(record)), record);
}

TEST(RequeueRecord, DamagedTextIsAnEmptyRecord) {
  for (const char* text : {"", "{", "[]", "null", R"({"version": 2, "job": "slurm 17", "failures": 3})",
                           R"({"version": 1, "job": 17, "failures": 3})"})
    EXPECT_EQ(parse_requeue_record(text), RequeueRecord()) << text;
  EXPECT_EQ(parse_requeue_record(R"({"version": 1, "job": "slurm 17", "failures": -4, "timeouts": 99999999999})"),
            (RequeueRecord{.job = "slurm 17"}));
}

TEST(ReportedRun, HasTheExitCodeOfItsStartOnly) {
  const ReportedRun run = parse_reported_run(kReport, SlurmStartId{"17", 2});
  EXPECT_EQ(run.exit_code, 85);
  EXPECT_TRUE(run.is_workers_code);
  EXPECT_EQ(run.published, 12);
  EXPECT_EQ(run.save_s, 1.5);
  EXPECT_EQ(parse_reported_run(kReport, SlurmStartId{"17", 3}).exit_code, std::nullopt);
  EXPECT_EQ(parse_reported_run(kReport, SlurmStartId{"18", 2}).exit_code, std::nullopt);
  EXPECT_EQ(parse_reported_run(kReport, std::nullopt).exit_code, std::nullopt);
  EXPECT_EQ(parse_reported_run(kReport, std::nullopt).published, 12);
}

TEST(ReportedRun, SkipsWhatItCannotRead) {
  for (const char* text : {"", "{", "[]", R"({"checkpoints": 3, "invocations": {}, "exit": null})",
                           R"({"invocations": [{"slurm": {"job": "17", "restarts": 0}}], "exit": {"code": null}})"}) {
    const ReportedRun run = parse_reported_run(text, SlurmStartId{"17", 0});
    EXPECT_EQ(run.exit_code, std::nullopt) << text;
    EXPECT_EQ(run.published, 0) << text;
  }
}

}  // namespace
}  // namespace ddprun
