#include "launcher/scheduler_status/slurm_comment.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

ProgressShown shown() {
  return {.progress = {.step = 512, .steps_total = 1407, .loss = 0.3412}, .seconds_left = 32, .loss_step = std::nullopt};
}

TEST(SlurmComment, SeparatesTheValuesWithCommas) {
  EXPECT_EQ(slurm_comment(shown()), "ddprun: step 512/1,407, loss 0.3412, 32 s left");
}

TEST(SlurmComment, ContainsNoCharactersThatScontrolCouldReadAsQuotes) {
  ProgressShown odd = shown();
  odd.progress.epochs = 3;
  for (const char c : slurm_comment(odd)) {
    EXPECT_TRUE(c >= ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\') << c;
  }
}

TEST(SlurmComment, AUsersCommentIsKept) {
  EXPECT_TRUE(may_set_slurm_comment("JobId=17 JobName=train\n   UserId=a(1) GroupId=a(1)\n   Comment= \n   Power=\n"));
  EXPECT_TRUE(may_set_slurm_comment("JobId=17 JobName=train\n   Comment=ddprun: step 3/10\n"));
  EXPECT_TRUE(may_set_slurm_comment("JobId=17 JobName=Comment=no\n   Power=\n"));
  EXPECT_FALSE(may_set_slurm_comment("JobId=17 JobName=train\n   Comment=fsx:1200\n   Power=\n"));
}

}  // namespace
}  // namespace ddprun
