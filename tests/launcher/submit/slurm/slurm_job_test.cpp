// Tests the functions that parse the output of Slurm commands. The output was recorded with Slurm 22.05.
#include "launcher/submit/slurm/slurm_job.hpp"

#include <gtest/gtest.h>

#include <map>

namespace ddprun {
namespace {

std::optional<std::string> job_in(const std::map<std::string, std::string>& values) {
  return slurm_job_of([&](std::string_view name) -> std::optional<std::string> {
    const auto found = values.find(std::string(name));
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(SlurmJob, ATaskOfAnArrayIsNamedByItsIndex) {
  EXPECT_EQ(job_in({{"SLURM_JOB_ID", "17"}}), "17");
  // The last task of an array has the same id as the array, so a command with this id would apply to all tasks.
  EXPECT_EQ(job_in({{"SLURM_JOB_ID", "3"}, {"SLURM_ARRAY_JOB_ID", "3"}, {"SLURM_ARRAY_TASK_ID", "1"}}), "3_1");
  EXPECT_EQ(job_in({}), std::nullopt);
  EXPECT_EQ(job_in({{"SLURM_JOB_ID", "x"}}), std::nullopt);
}

TEST(SlurmJob, AnIdIsOneOrTwoNumbers) {
  for (const char* id : {"1", "17", "17_3"}) EXPECT_TRUE(is_slurm_job(id)) << id;
  for (const char* id : {"", "_", "17_", "_3", "1_2_3", "runs/17", "17.0", "-1", "99999999999"})
    EXPECT_FALSE(is_slurm_job(id)) << id;
}

TEST(SlurmJob, ReadsScontrol) {
  const std::string line =
      "JobId=4 ArrayJobId=3 ArrayTaskId=0 JobName=a Requeue=0 b UserId=root(0) QOS=(null) JobState=RUNNING Reason=None "
      "Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 RunTime=00:00:13 TimeLimit=00:01:00 TimeMin=N/A\n";
  const SlurmJobState state = parse_scontrol_job(line);
  EXPECT_TRUE(state.requeue_allowed);
  EXPECT_EQ(state.seconds_left, 47);
  EXPECT_FALSE(parse_scontrol_job(" JobState=RUNNING Requeue=0 RunTime=1 TimeLimit=2").requeue_allowed);
  EXPECT_GT(parse_scontrol_job(" JobState=RUNNING RunTime=00:00:13 TimeLimit=UNLIMITED ").seconds_left, 1e9);
  EXPECT_EQ(parse_scontrol_job("").seconds_left, std::nullopt);
  EXPECT_TRUE(parse_scontrol_job("").requeue_allowed);
}

TEST(SlurmJob, ReadsSqueue) {
  const auto jobs = parse_squeue("3_1|3|RUNNING|None|/a|b/slurm/submit.sbatch\n4_[2-3]|5|PENDING|Resources|x\nbroken\n");
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].id, "3_1");
  EXPECT_EQ(jobs[0].number, "3");
  EXPECT_EQ(jobs[0].state, "RUNNING");
  EXPECT_EQ(jobs[0].command, "/a|b/slurm/submit.sbatch");
  EXPECT_EQ(jobs[1].reason, "Resources");
}

TEST(SlurmJob, ReadsSbatch) {
  EXPECT_EQ(parse_sbatch("17\n"), "17");
  EXPECT_EQ(parse_sbatch("17;cluster\n"), "17");
  EXPECT_EQ(parse_sbatch("Submitted batch job 17\n"), std::nullopt);
  EXPECT_EQ(parse_sbatch(""), std::nullopt);
}

TEST(SlurmJob, AProblemIsOneLine) {
  EXPECT_EQ(first_error_line("sbatch: error: invalid partition specified: x\nsbatch: error: Batch job submission failed\n"),
            "invalid partition specified: x");
  EXPECT_EQ(first_error_line("slurm_load_jobs error: Invalid job id specified\n"), "Invalid job id specified");
  EXPECT_EQ(first_error_line("Requested operation is presently disabled for job 1\n"),
            "Requested operation is presently disabled for job 1");
}

}  // namespace
}  // namespace ddprun
