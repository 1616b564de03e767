#include "launcher/options/bench_command.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

using Words = std::vector<std::string>;

Words command(const Words& args) {
  return command_of_bench(args, "/bin/ddptrain");
}

TEST(BenchCommand, SeparatesTheOptionsOfTheLauncherFromThoseOfTheProgram) {
  EXPECT_EQ(command({"allreduce"}), (Words{"/bin/ddptrain", "bench", "allreduce"}));
  EXPECT_EQ(command({"alltoall", "--nproc-per-node", "4", "--sizes", "4K,1M", "--nnodes=2", "--json", "--backend=gloo"}),
            (Words{"--nproc-per-node", "4", "--nnodes=2", "/bin/ddptrain", "bench", "alltoall", "--sizes", "4K,1M", "--json",
                   "--backend=gloo"}));
  EXPECT_EQ(command({"broadcast", "--sizes"}), (Words{"/bin/ddptrain", "bench", "broadcast", "--sizes"}));
}

TEST(BenchCommand, TheCollectiveComesFirst) {
  EXPECT_THROW(command({}), UsageError);
  EXPECT_THROW(command({"--json", "allreduce"}), UsageError);
  try {
    command({"all_reduce"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("Did you mean 'allreduce'?"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ddprun
