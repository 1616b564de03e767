// Words of other tools. The suggested keys and options must exist.
#include "common/other_words/other_words.hpp"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

TEST(OtherWords, OfAConfigNameTheKeyHere) {
  EXPECT_EQ(hint_for_other_key("learning_rate"), " Here it is 'optimizer.lr'.");
  EXPECT_EQ(hint_for_other_key("Learning-Rate"), " Here it is 'optimizer.lr'.");
  EXPECT_EQ(hint_for_other_key("num_workers"), " Here it is 'data.loader_threads', threads of each worker.");
  EXPECT_EQ(hint_for_other_key("gpus"), " Here it is an option of ddprun: --nproc-per-node.");
  EXPECT_EQ(hint_for_other_key("bf16"), " Here it is \"precision\": \"bf16\".");
  EXPECT_EQ(hint_for_other_key("colour"), "");
}

TEST(OtherWords, OfACommandLineNameTheOptionHere) {
  EXPECT_EQ(hint_for_other_option("gpus"), ". Here it is --nproc-per-node");
  EXPECT_EQ(hint_for_other_option("num_nodes"), ". Here it is --nnodes");
  EXPECT_EQ(hint_for_other_option("colour"), "");
}

}  // namespace
}  // namespace ddprun
