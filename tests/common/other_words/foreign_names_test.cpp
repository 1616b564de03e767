// Tests that names from other tools are mapped to our keys and options, and only to keys and options that exist.
#include "common/other_words/foreign_names.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(ForeignNames, ConfigNamesMapToOurKeys) {
  EXPECT_EQ(hint_for_foreign_key("learning_rate"), " In ddprun it is 'optimizer.lr'.");
  EXPECT_EQ(hint_for_foreign_key("Learning-Rate"), " In ddprun it is 'optimizer.lr'.");
  EXPECT_EQ(hint_for_foreign_key("num_workers"), " In ddprun it is 'data.loader_threads', the number of threads per worker.");
  EXPECT_EQ(hint_for_foreign_key("gpus"), " In ddprun it is the option --nproc-per-node.");
  EXPECT_EQ(hint_for_foreign_key("bf16"), " In ddprun it is \"precision\": \"bf16\".");
  EXPECT_EQ(hint_for_foreign_key("colour"), "");
}

TEST(ForeignNames, OptionNamesMapToOurOptions) {
  EXPECT_EQ(hint_for_foreign_option("gpus"), ". In ddprun it is --nproc-per-node");
  EXPECT_EQ(hint_for_foreign_option("num_nodes"), ". In ddprun it is --nnodes");
  EXPECT_EQ(hint_for_foreign_option("colour"), "");
}

}  // namespace
}  // namespace ddprun
