// Tests templates (as in torchrun) in the arguments of a script. The expected values are the values that torchrun 2.11 passes
// to its workers.
#include "launcher/plan/argument_template.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

using Words = std::vector<std::string>;

TEST(ArgumentTemplate, TorchrunsExamples) {
  EXPECT_EQ(
      fill_arguments(
          {"python", "s.py", "$local_rank", "${local_rank}x", "$$", "$$local_rank", "$x", "$", "${bad", "$local_rankx"}, 1),
      (Words{"python", "s.py", "1", "1x", "$", "$local_rank", "$x", "$", "${bad", "$local_rankx"}));
}

TEST(ArgumentTemplate, TextWithoutANameIsUnchanged) {
  for (const char* text : {"$1", "${}", "${local rank}", "${local_rank", "$LOCAL_RANK", "$(local_rank)", "100%", "$-"}) {
    EXPECT_EQ(fill_arguments({"p", text}, 3).at(1), text);
  }
  EXPECT_EQ(fill_arguments({"p", "$local_rank.$local_rank-${local_rank}$$$local_rank"}, 3).at(1), "3.3-3$3");
  EXPECT_EQ(fill_arguments({"p", "${${local_rank}}"}, 3).at(1), "${3}");
}

TEST(ArgumentTemplate, TheProgramIsUnchanged) {
  EXPECT_EQ(fill_arguments({"/opt/$local_rank/run", "$local_rank"}, 0), (Words{"/opt/$local_rank/run", "0"}));
}

TEST(ArgumentTemplate, FilledInTextIsNotExpandedAgain) {
  const auto lookup = [](std::string_view name) { return name == "a" ? std::optional<std::string>("$b$$") : std::nullopt; };
  EXPECT_EQ(fill_template("<$a>", lookup), "<$b$$>");
}

}  // namespace
}  // namespace ddprun
