// Tests the mesh of 8 ranks from the example in the header, and the errors for sizes that do not fit.
#include "trainer/layout/device_mesh.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

using Ranks = std::vector<int>;

std::string mesh_error(const Parallelism& parallelism, const Ranks& nodes) {
  try {
    mesh_of(parallelism, nodes);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceMesh, RowsAreReplicasAndColumnsAreSlices) {
  const DeviceMesh mesh(8, 4);
  EXPECT_EQ(mesh.size(Axis::kReplica), 2);
  EXPECT_EQ(mesh.size(Axis::kShard), 4);
  EXPECT_EQ(mesh.coordinate(Axis::kReplica, 6), 1);
  EXPECT_EQ(mesh.coordinate(Axis::kShard, 6), 2);
  EXPECT_EQ(mesh.line(Axis::kShard, 6), (Ranks{4, 5, 6, 7}));
  EXPECT_EQ(mesh.line(Axis::kReplica, 6), (Ranks{2, 6}));
  EXPECT_EQ(mesh.unit(), 4);
}

TEST(DeviceMesh, EachRankHasItsShareOfTheData) {
  const DeviceMesh mesh(6, 3);
  EXPECT_EQ(mesh.size(Axis::kData), 6);
  EXPECT_EQ(mesh.coordinate(Axis::kData, 4), 4);
  EXPECT_EQ(mesh.line(Axis::kData, 4), (Ranks{0, 1, 2, 3, 4, 5}));
}

TEST(DeviceMesh, LinesOfAnAxisDivideTheRanks) {
  for (const int shard_size : {1, 2, 3, 6}) {
    const DeviceMesh mesh(6, shard_size);
    for (const Axis axis : {Axis::kReplica, Axis::kShard, Axis::kData}) {
      for (int rank = 0; rank < 6; ++rank) {
        const Ranks line = mesh.line(axis, rank);
        ASSERT_EQ(static_cast<int>(line.size()), mesh.size(axis));
        EXPECT_EQ(line[static_cast<std::size_t>(mesh.coordinate(axis, rank))], rank);
        for (const int other : line) EXPECT_EQ(mesh.line(axis, other), line);
      }
    }
  }
}

TEST(DeviceMesh, FollowsTheStrategy) {
  const Ranks nodes{0, 0, 1, 1};
  EXPECT_EQ(mesh_of({.strategy = StrategyKind::kDdp}, nodes).size(Axis::kReplica), 4);
  for (const StrategyKind strategy : {StrategyKind::kZero1, StrategyKind::kZero2, StrategyKind::kFsdp}) {
    EXPECT_EQ(mesh_of({.strategy = strategy}, nodes).size(Axis::kShard), 4);
  }
  EXPECT_EQ(mesh_of({.strategy = StrategyKind::kHybrid}, nodes).size(Axis::kShard), 2);
  EXPECT_EQ(mesh_of({.strategy = StrategyKind::kHybrid, .shard_size = 1}, nodes).size(Axis::kReplica), 4);
}

TEST(DeviceMesh, WorldChangesByItsUnit) {
  EXPECT_EQ(world_unit({.strategy = StrategyKind::kDdp}, 8), 1);
  EXPECT_EQ(world_unit({.strategy = StrategyKind::kFsdp}, 8), 1);
  EXPECT_EQ(world_unit({.strategy = StrategyKind::kHybrid}, 8), 8);
  EXPECT_EQ(world_unit({.strategy = StrategyKind::kHybrid, .shard_size = 4}, 8), 4);
}

TEST(DeviceMesh, ErrorsNameTheKey) {
  EXPECT_EQ(mesh_error({.strategy = StrategyKind::kHybrid, .shard_size = 3}, {0, 0, 1, 1}),
            "\"parallel.shard_size\" is 3, which does not divide the 4 workers; start a multiple of 3 workers, or "
            "change \"parallel.shard_size\"");
  EXPECT_EQ(mesh_error({.strategy = StrategyKind::kHybrid, .shard_size = -1}, {0, 0}),
            "\"parallel.shard_size\" is -1; expected 1 or more");
  EXPECT_EQ(mesh_error({.strategy = StrategyKind::kFsdp, .shard_size = 2}, {0, 0}),
            "\"parallel.shard_size\" is only for the strategy \"hybrid\", but \"parallel.strategy\" is \"fsdp\"; remove "
            "\"parallel.shard_size\"");
  EXPECT_EQ(
      mesh_error({.strategy = StrategyKind::kHybrid}, {0, 0, 0, 1}),
      "\"parallel.strategy\": \"hybrid\" shards the state inside each node, but one node has 1 workers and another has 3; set "
      "\"parallel.shard_size\" to a divisor of both");
}

}  // namespace
}  // namespace ddprun::trainer
