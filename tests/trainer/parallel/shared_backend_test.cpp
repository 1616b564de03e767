// Tests the shared-memory backend through the process group of c10d, in real processes. The tests compare the result of each
// call with a closed formula. They also test a lost rank, an abort and a mismatch.
#include "trainer/parallel/shared/shared_backend.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/trainer/parallel/ranks.hpp"
#include "trainer/parallel/group_breaker.hpp"
#include "trainer/parallel/shared/segment_handover.hpp"

namespace ddprun::trainer {
namespace {

using Tensors = std::vector<at::Tensor>;

std::unique_ptr<Rank> as_shared_rank_of(int count, const Endings& endings = {}, GroupBreaker* breaker = nullptr) {
  auto rank = as_rank_of(count, endings, breaker, DdpConfig::Backend::kShared);
  if (rank && shared_backend_of(*rank->group) == nullptr) {
    ADD_FAILURE() << "the group has no shared memory";
    return nullptr;
  }
  return rank;
}

// Returns `elements` values that differ between ranks: rank * 100, rank * 100 + 1, ...
at::Tensor values_of(int rank, std::int64_t elements) {
  return at::arange(elements, at::kFloat) + 100.0 * rank;
}

// Returns the sum of values_of() over all ranks.
at::Tensor sum_of(int ranks, std::int64_t elements) {
  return at::arange(elements, at::kFloat) * ranks + 100.0 * ranks * (ranks - 1) / 2;
}

// A number of elements that is odd and needs several chunks.
constexpr std::int64_t kLarge = 300'001;

TEST(SharedBackend, ReductionsMatchTheirClosedForms) {
  const auto rank = as_shared_rank_of(3);
  if (!rank) return;
  const int own = rank->environment.rank, ranks = 3;
  for (const std::int64_t elements : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, kLarge}) {
    Tensors tensors{values_of(own, elements)};
    rank->group->allreduce(tensors)->wait();
    EXPECT_TRUE(tensors[0].equal(sum_of(ranks, elements))) << elements;

    Tensors part{at::empty({elements})};
    std::vector<Tensors> parts{{values_of(own, elements), values_of(own, elements) + 1, values_of(own, elements) + 2}};
    rank->group->reduce_scatter(part, parts)->wait();
    EXPECT_TRUE(part[0].equal(sum_of(ranks, elements) + ranks * own)) << elements;

    at::Tensor output = at::empty({elements});
    at::Tensor input = values_of(own, ranks * elements);
    rank->group->_reduce_scatter_base(output, input)->wait();
    EXPECT_TRUE(output.equal(sum_of(ranks, ranks * elements).narrow(0, own * elements, elements))) << elements;
  }
  Tensors tensors{values_of(own, 100)};
  c10d::ReduceOptions to_rank_1;
  to_rank_1.rootRank = 1;
  rank->group->reduce(tensors, to_rank_1)->wait();
  EXPECT_TRUE(tensors[0].equal(own == 1 ? sum_of(ranks, 100) : values_of(own, 100)));
}

TEST(SharedBackend, OtherReductionsAndTypes) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  const int own = rank->environment.rank;
  using Op = c10d::ReduceOp;
  for (const auto& [op, expected] :
       std::vector<std::pair<Op::RedOpType, double>>{{Op::SUM, 5}, {Op::PRODUCT, 6}, {Op::MIN, 2}, {Op::MAX, 3}}) {
    for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kByte}) {
      Tensors tensors{at::full({7}, own == 0 ? 2 : 3, type)};
      c10d::AllreduceOptions options;
      options.reduceOp = op;
      rank->group->allreduce(tensors, options)->wait();
      EXPECT_TRUE(tensors[0].equal(at::full({7}, expected, type))) << expected << ' ' << c10::toString(type);
    }
  }
  Tensors complex{at::full({7}, 1.0, at::kComplexFloat)};
  EXPECT_THROW(rank->group->allreduce(complex)->wait(), std::invalid_argument);
  rank->group->broadcast(complex)->wait();  // moves bytes
  EXPECT_TRUE(complex[0].equal(at::full({7}, 1.0, at::kComplexFloat)));
}

TEST(SharedBackend, MovesDataBetweenRanks) {
  const auto rank = as_shared_rank_of(3);
  if (!rank) return;
  const int own = rank->environment.rank, ranks = 3;
  for (const std::int64_t elements : {std::int64_t{1}, std::int64_t{1000}, kLarge}) {
    Tensors tensors{values_of(own, elements)};
    c10d::BroadcastOptions from_rank_2;
    from_rank_2.rootRank = 2;
    rank->group->broadcast(tensors, from_rank_2)->wait();
    EXPECT_TRUE(tensors[0].equal(values_of(2, elements))) << elements;

    Tensors own_part{values_of(own, elements)};
    std::vector<Tensors> all{{at::empty({elements}), at::empty({elements}), at::empty({elements})}};
    rank->group->allgather(all, own_part)->wait();
    for (int other = 0; other < ranks; ++other) {
      EXPECT_TRUE(all[0][static_cast<std::size_t>(other)].equal(values_of(other, elements))) << elements;
    }

    at::Tensor flat = at::empty({ranks * elements});
    rank->group->_allgather_base(flat, own_part[0])->wait();
    EXPECT_TRUE(flat.narrow(0, 2 * elements, elements).equal(values_of(2, elements))) << elements;

    // Rank r sends values r, r + 1, r + 2 to ranks 0, 1, 2.
    Tensors from{at::full({elements}, own), at::full({elements}, own + 1), at::full({elements}, own + 2)};
    Tensors to{at::empty({elements}), at::empty({elements}), at::empty({elements})};
    for (Tensors* list : {&from, &to}) {
      for (at::Tensor& tensor : *list) tensor = tensor.to(at::kFloat);
    }
    rank->group->alltoall(to, from)->wait();
    for (int other = 0; other < ranks; ++other) {
      EXPECT_TRUE(to[static_cast<std::size_t>(other)].equal(at::full({elements}, other + own, at::kFloat))) << elements;
    }
  }
}

TEST(SharedBackend, GathersAndScattersAtARoot) {
  const auto rank = as_shared_rank_of(3);
  if (!rank) return;
  const int own = rank->environment.rank;
  const bool is_root = own == 1;
  c10d::GatherOptions to_rank_1;
  to_rank_1.rootRank = 1;
  Tensors own_part{values_of(own, 10)};
  std::vector<Tensors> gathered;
  if (is_root) gathered.push_back({at::empty({10}), at::empty({10}), at::empty({10})});
  rank->group->gather(gathered, own_part, to_rank_1)->wait();
  if (is_root) {
    EXPECT_TRUE(gathered[0][2].equal(values_of(2, 10)));
  }

  c10d::ScatterOptions from_rank_1;
  from_rank_1.rootRank = 1;
  Tensors received{at::empty({10})};
  std::vector<Tensors> sent;
  if (is_root) sent.push_back({values_of(5, 10), values_of(6, 10), values_of(7, 10)});
  rank->group->scatter(received, sent, from_rank_1)->wait();
  EXPECT_TRUE(received[0].equal(values_of(5 + own, 10)));
}

TEST(SharedBackend, RowsOfDifferentNumbersAreExchanged) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  const int own = rank->environment.rank;
  // Rank 0 sends 1 row to itself and 2 rows to rank 1. Rank 1 sends 3 rows to rank 0 and none to itself.
  std::vector<std::int64_t> sent = own == 0 ? std::vector<std::int64_t>{1, 2} : std::vector<std::int64_t>{3, 0};
  std::vector<std::int64_t> received = own == 0 ? std::vector<std::int64_t>{1, 3} : std::vector<std::int64_t>{2, 0};
  at::Tensor input = at::full({3, 5}, own + 1.0);
  at::Tensor output = at::zeros({received[0] + received[1], 5});
  rank->group->alltoall_base(output, input, received, sent)->wait();
  EXPECT_EQ(output.sum().item<float>(), own == 0 ? 5 + 2 * 15 : 10);
}

TEST(SharedBackend, TensorsThatAreNotContiguousKeepTheirPlace) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  at::Tensor whole = at::zeros({4, 4});
  Tensors column{whole.select(1, 2)};
  column[0].fill_(rank->environment.rank + 1);
  rank->group->allreduce(column)->wait();
  EXPECT_TRUE(whole.select(1, 2).equal(at::full({4}, 3.0)));
  EXPECT_EQ(whole.sum().item<float>(), 12);
}

TEST(SharedBackend, MessagesBetweenTwoRanks) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  Tensors large{values_of(0, kLarge)}, small{values_of(1, 3)};
  if (rank->environment.rank == 0) {
    rank->group->send(small, 1, 7)->wait();
    rank->group->send(large, 1, 8)->wait();
    return;
  }
  Tensors large_copy{at::empty({kLarge})}, small_copy{at::empty({3})};
  rank->group->recv(large_copy, 0, 8)->wait();  // receives the two messages in the opposite order
  rank->group->recv(small_copy, 0, 7)->wait();
  EXPECT_TRUE(large_copy[0].equal(large[0]));
  EXPECT_TRUE(small_copy[0].equal(small[0]));
}

TEST(SharedBackend, BothRanksMayFirstSendOrFirstReceive) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  const int own = rank->environment.rank, other = 1 - own;
  for (const bool sends_first : {true, false}) {
    // A receive into a tensor that is not contiguous.
    Tensors sent{values_of(own, kLarge)}, received{at::zeros({kLarge, 2}).select(1, 1)};
    const auto send = [&] { return rank->group->send(sent, other, 5); };
    const auto receive = [&] { return rank->group->recv(received, other, 5); };
    const auto first = sends_first ? send() : receive();
    EXPECT_FALSE(first->isCompleted());  // the other rank makes its second call only after the all-reduce
    Tensors sum{values_of(own, 10)};
    rank->group->allreduce(sum)->wait();  // does not wait for the message
    EXPECT_TRUE(sum[0].equal(sum_of(2, 10)));
    const auto second = sends_first ? receive() : send();
    EXPECT_TRUE(second->wait());
    EXPECT_TRUE(first->wait());
    EXPECT_TRUE(first->isCompleted());
    EXPECT_TRUE(received[0].equal(values_of(other, kLarge)));
    rank->group->barrier()->wait();
  }
}

TEST(SharedBackend, ALostRankEndsAStartedMessage) {
  const auto rank = as_shared_rank_of(2, {{1, -SIGKILL}});
  if (!rank) return;
  if (rank->environment.rank == 1) ::raise(SIGKILL);
  Tensors received{at::zeros({10})};
  const auto work = rank->group->recv(received, 1, 5);
  try {
    work->wait();
    FAIL() << "no error";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_lost_peer(error)) << error.what();
  }
}

TEST(SharedBackend, AllRanksUseGlooIfOneCannotAllocateItsPart) {
  if (!is_rank()) return start_ranks(2, {}, {}, true);
  const WorkerEnvironment environment = read_environment();
  if (environment.rank == 1) {
    const rlimit limit{.rlim_cur = 64 << 10, .rlim_max = 64 << 10};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  AgentChannel channel(environment.channel_fd, channel::Hello{}, nullptr);
  const auto store = make_store(environment, &channel, kTestTimeout);
  testing::internal::CaptureStderr();
  const auto group =
      make_process_group(environment, store, c10::kCPU, 0,
                         {.timeout = kTestTimeout, .backend = DdpConfig::Backend::kShared, .bucket_bytes = 1 << 20});
  const std::string printed = testing::internal::GetCapturedStderr();
  EXPECT_EQ(shared_backend_of(*group), nullptr);
  const std::string reason = "rank 1: this rank needs 1 MiB of shared memory, but the limit of file sizes";
  EXPECT_EQ(printed.find(reason) != std::string::npos, environment.rank == 0) << printed;
  Tensors tensors{values_of(environment.rank, 10)};
  group->allreduce(tensors)->wait();
  EXPECT_TRUE(tensors[0].equal(sum_of(2, 10)));
}

TEST(SharedBackend, BuffersAreReducedInPlaceAndOutliveTheGroup) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  SharedBackend& backend = *shared_backend_of(*rank->group);
  const int own = rank->environment.rank;
  Tensors bucket{backend.allocateTensor(1000, at::TensorOptions(at::kFloat))};
  bucket[0].copy_(values_of(own, 1000));
  rank->group->allreduce(bucket)->wait();
  EXPECT_TRUE(bucket[0].equal(sum_of(2, 1000)));
  EXPECT_FALSE(backend.allocateTensor(1 << 20, at::TensorOptions(at::kDouble)).is_alias_of(bucket[0]));  // ordinary memory
  rank->group.reset();
  EXPECT_TRUE(bucket[0].equal(sum_of(2, 1000)));
}

TEST(SharedBackend, TheFutureHoldsTheOutputs) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  Tensors tensors{values_of(rank->environment.rank, 10)};
  const auto work = rank->group->allreduce(tensors);
  EXPECT_TRUE(work->isCompleted());
  EXPECT_TRUE(work->getFuture()->value().toTensorVector()[0].equal(sum_of(2, 10)));
}

TEST(SharedBackend, ALostRankEndsTheWaitOfTheOthers) {
  const auto rank = as_shared_rank_of(3, {{1, -SIGKILL}});
  if (!rank) return;
  rank->group->barrier()->wait();
  if (rank->environment.rank == 1) ::raise(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  Tensors tensors{values_of(0, 10)};
  const auto work = rank->group->allreduce(tensors);
  try {
    work->wait();
    FAIL() << "the all-reduce without rank 1 has succeeded";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_lost_peer(error)) << error.what();
  }
  EXPECT_TRUE(work->getFuture()->hasError());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kTestTimeout / 2);
}

TEST(SharedBackend, BreakingTheGroupEndsAWait) {
  GroupBreaker breaker(2);
  const auto rank = as_shared_rank_of(2, {}, &breaker);
  if (!rank) return;
  rank->group->barrier()->wait();
  if (rank->environment.rank == 1) {
    rank->store->wait({"broken"}, kTestTimeout);  // never arrives at the all-reduce
    return;
  }
  const std::jthread breaks([&] { breaker.break_group(); });
  Tensors tensors{values_of(0, 10)};
  try {
    rank->group->allreduce(tensors)->wait();
    ADD_FAILURE() << "the all-reduce of one rank has succeeded";
  } catch (const std::exception& error) {
    EXPECT_TRUE(is_lost_peer(error)) << error.what();
  }
  rank->store->set("broken", std::vector<std::uint8_t>{1});
}

TEST(SharedBackend, DifferentShapesAreNamedOnAllRanks) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  Tensors tensors{values_of(0, 10 + rank->environment.rank)};
  try {
    rank->group->allreduce(tensors)->wait();
    FAIL() << "an all-reduce of different sizes has succeeded";
  } catch (const std::exception& error) {
    EXPECT_FALSE(is_lost_peer(error));
    const std::string text = error.what();
    EXPECT_NE(text.find("10 F32"), std::string::npos) << text;
    EXPECT_NE(text.find("11 F32"), std::string::npos) << text;
  }
}

TEST(SharedBackend, ArgumentsAreChecked) {
  const auto rank = as_shared_rank_of(2);
  if (!rank) return;
  Tensors two{at::empty({1}), at::empty({1})};
  EXPECT_THROW(rank->group->allreduce(two)->wait(), std::invalid_argument);
  Tensors one{at::empty({1})};
  c10d::BroadcastOptions no_such_rank;
  no_such_rank.rootRank = 2;
  EXPECT_THROW(rank->group->broadcast(one, no_such_rank)->wait(), std::invalid_argument);
  at::Tensor output = at::empty({3}), input = at::empty({2});
  EXPECT_THROW(rank->group->_allgather_base(output, input)->wait(), std::invalid_argument);
  Tensors undefined{at::Tensor()};
  EXPECT_ANY_THROW(rank->group->broadcast(undefined)->wait());
}

TEST(SharedMemoryChoice, AutoKeepsTheBitsOfEarlierRuns) {
  using Backend = DdpConfig::Backend;
  struct Row {
    Backend backend;
    int world, local;
    c10::DeviceType device;
    bool shared;
  };
  for (const Row& row : {Row{Backend::kAuto, 2, 2, c10::kCPU, true}, Row{Backend::kAuto, 3, 3, c10::kCPU, false},
                         Row{Backend::kShared, 3, 3, c10::kCPU, true}, Row{Backend::kShared, 4, 2, c10::kCPU, false},
                         Row{Backend::kGloo, 2, 2, c10::kCPU, false}, Row{Backend::kAuto, 1, 1, c10::kCPU, false},
                         Row{Backend::kShared, 2, 2, c10::kCUDA, false}, Row{Backend::kNccl, 2, 2, c10::kCPU, false}}) {
    WorkerEnvironment environment;
    environment.world_size = row.world;
    environment.local_world_size = row.local;
    EXPECT_EQ(wants_shared_memory(row.backend, environment, row.device), row.shared) << row.world << ' ' << row.local;
  }
}

TEST(SegmentAddress, IsReadBackAndChecked) {
  const SegmentAddress address{.boot_id = "ab-12", .pid_namespace = 4026531836, .pid = 12, .fd = 3, .device = 1, .inode = 99};
  EXPECT_EQ(address_in(text_of(address)), address);
  for (const char* text :
       {"", "ab-12", "ab-12 1 2 3 4", "ab-12 1 0 3 4 5", "ab-12 1 2 -3 4 5", "ab-12 1 2 3 4 5 6", "a b c d e f"}) {
    EXPECT_EQ(address_in(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace ddprun::trainer
