#include "launcher/scheduler_status/slurm_comment.hpp"

#include <gtest/gtest.h>

#include <map>

namespace ddprun {
namespace {

ProgressShown shown() {
  return {.progress = {.step = 512, .steps_total = 1407, .loss = 0.3412}, .seconds_left = 32, .loss_step = std::nullopt};
}

TEST(SlurmComment, SeparatesTheFiguresWithCommas) {
  EXPECT_EQ(slurm_comment(shown()), "ddprun: step 512/1,407, loss 0.3412, 32 s left");
}

TEST(SlurmComment, ContainsNoCharactersThatScontrolCouldReadAsQuotes) {
  ProgressShown odd = shown();
  odd.progress.epochs = 3;
  for (const char c : slurm_comment(odd)) {
    EXPECT_TRUE(c >= ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\') << c;
  }
}

TEST(SlurmComment, TheCommandNamesTheTaskOfAnArray) {
  EXPECT_EQ(slurm_comment_command("17_3", shown()),
            (std::vector<std::string>{"scontrol", "update", "JobId=17_3", "Comment=" + slurm_comment(shown())}));
}

TEST(SlurmComment, AUsersCommentIsKept) {
  std::map<std::string, std::string, std::less<>> variables{{"SLURM_JOB_ID", "17"}};
  const Environment environment = [&](std::string_view name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
  EXPECT_EQ(slurm_job_without_comment(environment), "17");
  variables["SLURM_JOB_COMMENT"] = "mine";
  EXPECT_EQ(slurm_job_without_comment(environment), std::nullopt);
  variables.clear();
  EXPECT_EQ(slurm_job_without_comment(environment), std::nullopt);
}

}  // namespace
}  // namespace ddprun
