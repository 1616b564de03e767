// Tests faults of ranks: aborts, kills and stops at each place of the protocol, and ranks that make different calls. Each fault
// must end the waits of all ranks with an error that names the cause. No test depends on the time that this takes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "tests/trainer/collectives/shared_memory/hooked_transport.hpp"
#include "tests/trainer/collectives/shared_memory/test_ranks.hpp"
#include "trainer/collectives/send_receive.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kManyChunks = 9000;  // number of floats: 9 chunks of 4096 bytes

// Makes one call for each kind of exchange: copied with and without a combine step, in place, exposed input, and messages.
void make_all_calls(Transport& transport) {
  std::vector<float> data(kManyChunks, 1);
  std::vector<float> parts(kManyChunks * kRanks, 1);
  const auto bytes = [](std::vector<float>& vector) { return reinterpret_cast<std::byte*>(vector.data()); };
  all_reduce(transport, ElementType::kF32, Reduction::kSum, bytes(data), data.size());
  broadcast(transport, ElementType::kF32, bytes(data), data.size(), 1);
  all_reduce(transport, ElementType::kF32, Reduction::kSum, bytes(data), 10);
  std::byte* const exposed = transport.exposed_at(transport.rank(), 0, kManyChunks * 4);
  all_reduce(transport, ElementType::kF32, Reduction::kSum, exposed, kManyChunks);
  all_gather(transport, ElementType::kF32, exposed, bytes(parts), kManyChunks);
  Messages messages(transport);
  const std::span<std::byte> message(bytes(data), 3 * 4032);
  if (transport.rank() != 0) messages.send(transport.rank() - 1, 1, message);
  if (transport.rank() != transport.ranks() - 1) messages.receive(transport.rank() + 1, 1, message);
}

// Makes the calls, and then barriers until one of them fails. Returns the error.
CollectiveError error_of(Transport& transport, const std::function<void(Transport&)>& calls) {
  try {
    calls(transport);
    while (true) barrier(transport);
  } catch (const CollectiveError& error) {
    return error;
  }
}

// Runs each rank except `other` in a thread, and returns their errors.
std::vector<CollectiveError> errors_of_ranks(const std::shared_ptr<const Segment>& segment, int other,
                                             const WaitSettings& waits, const std::function<void(Transport&)>& calls) {
  std::vector<std::optional<CollectiveError>> errors(static_cast<std::size_t>(segment->ranks()));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < segment->ranks(); ++rank) {
      if (rank == other) continue;
      threads.emplace_back([&, rank] {
        errors[static_cast<std::size_t>(rank)] = error_of(*attached(mapped_again(segment), rank, waits), calls);
      });
    }
  }
  std::vector<CollectiveError> found;
  for (const auto& error : errors) {
    if (error) found.push_back(*error);
  }
  return found;
}

TEST(Faults, AbortAtEachPlaceEndsAllRanks) {
  bool aborted = true;
  for (int place = 0; aborted; ++place) {
    aborted = false;
    const auto segment = created(small_sizes(kRanks));
    // Rank 1 aborts the group but has no error itself, like an agent that aborts a group.
    std::optional<CollectiveError> of_rank_1;
    std::jthread rank_1([&] {
      const auto transport = attached(mapped_again(segment), 1, test_waits(kRanks));
      HookedTransport hooked(*transport, [&](int call) {
        if (call == place) {
          segment->abort({.kind = AbortCause::Kind::kOutside});
          aborted = true;
        }
      });
      of_rank_1 = error_of(hooked, [&](Transport& each) {
        make_all_calls(each);
        if (!aborted) segment->abort({.kind = AbortCause::Kind::kOutside});
      });
    });
    const auto errors = errors_of_ranks(segment, 1, test_waits(kRanks), make_all_calls);
    rank_1.join();
    ASSERT_EQ(errors.size(), 2u) << "place " << place;
    for (const CollectiveError& error : {errors[0], errors[1], *of_rank_1}) {
      EXPECT_EQ(error.failure(), CollectiveFailure::kAborted) << "place " << place << ": " << error.what();
    }
  }
}

TEST(Faults, KillAtEachPlaceNamesTheLostRank) {
  bool killed = true;
  for (int place = 0; killed; ++place) {
    const auto segment = created(small_sizes(kRanks));
    RankProcess child([&] {
      const auto transport = attached(segment, 1, test_waits(kRanks));
      HookedTransport hooked(*transport, [&](int call) {
        if (call == place) ::raise(SIGKILL);
      });
      make_all_calls(hooked);
      return 0;
    });
    const auto errors = errors_of_ranks(segment, 1, test_waits(kRanks), make_all_calls);
    ASSERT_EQ(errors.size(), 2u) << "place " << place;
    for (const CollectiveError& error : errors) {
      EXPECT_EQ(error.failure(), CollectiveFailure::kRankLost) << "place " << place << ": " << error.what();
      EXPECT_EQ(error.rank(), 1);
    }
    const int code = child.wait();
    killed = code == 128 + SIGKILL;
    ASSERT_TRUE(killed || code == 0) << code;
  }
}

// Rank 0 kills rank 1 at a random moment, while all ranks make calls without end.
TEST(Faults, KillAtARandomMomentNamesTheLostRank) {
  const char* const wanted = std::getenv("DDPRUN_KILLS");
  const int kills = wanted != nullptr ? std::atoi(wanted) : 30;
  const auto seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto endless = [](Transport& transport) {
    while (true) make_all_calls(transport);
  };
  for (int kill = 0; kill < kills; ++kill) {
    const auto segment = created(small_sizes(kRanks));
    RankProcess child([&] {
      endless(*attached(segment, 1, test_waits(kRanks)));
      return 0;
    });
    // From the third call on, rank 1 has attached. Before that, the other ranks have not recorded its process.
    int calls_left = std::uniform_int_distribution(3, 400)(random);
    int spin = std::uniform_int_distribution(0, 20'000)(random);
    const auto errors = errors_of_ranks(segment, 1, test_waits(kRanks), [&](Transport& transport) {
      HookedTransport hooked(transport, [&](int) {
        if (transport.rank() != 0 || calls_left-- != 0) return;
        for (std::atomic<int> turn = 0; turn < spin; ++turn) {
        }
        ::kill(child.pid(), SIGKILL);
      });
      endless(hooked);
    });
    ASSERT_EQ(errors.size(), 2u);
    for (const CollectiveError& error : errors) {
      ASSERT_EQ(error.failure(), CollectiveFailure::kRankLost) << error.what();
      ASSERT_EQ(error.rank(), 1);
    }
  }
}

TEST(Faults, AStoppedRankExceedsTheLimitAndGetsTheSameErrorWhenItContinues) {
  for (const int place : {0, 2, 5}) {
    const auto segment = created(small_sizes(kRanks));
    RankProcess child([&] {
      const auto transport = attached(segment, 1, test_waits(kRanks));
      HookedTransport hooked(*transport, [&](int call) {
        if (call == place) ::raise(SIGSTOP);
      });
      const CollectiveError error = error_of(hooked, make_all_calls);
      return error.failure() == CollectiveFailure::kLimit && error.rank() == 1 ? 7 : 8;
    });
    const auto errors = errors_of_ranks(segment, 1, test_waits(kRanks, std::chrono::milliseconds(200)), make_all_calls);
    ASSERT_EQ(errors.size(), 2u);
    for (const CollectiveError& error : errors) {
      EXPECT_EQ(error.failure(), CollectiveFailure::kLimit) << error.what();
      EXPECT_EQ(error.rank(), 1);
    }
    ::kill(child.pid(), SIGCONT);
    EXPECT_EQ(child.wait(), 7);
  }
}

// Rank 1 ends after it has published its phase, so the other ranks do not wait for it. Rank 2 never arrives, so the error must
// name rank 2.
TEST(Faults, ARankThatHasEndedAfterItsPartIsNotLost) {
  const auto segment = created(small_sizes(kRanks));
  RankProcess child([&] {
    attached(segment, 1, test_waits(kRanks))->arrive();
    return 0;
  });
  EXPECT_EQ(child.wait(), 0);
  const auto transport = attached(segment, 0, test_waits(kRanks, std::chrono::milliseconds(100)));
  const CollectiveError error = error_of(*transport, barrier);
  EXPECT_EQ(error.failure(), CollectiveFailure::kLimit) << error.what();
  EXPECT_EQ(error.rank(), 2);
}

// If a rank has not attached, the other ranks cannot check its process. So only the time limit or the agent can end their
// wait.
TEST(Faults, ARankThatEndsBeforeItAttachesExceedsTheLimit) {
  const auto segment = created(small_sizes(2));
  const auto transport = attached(segment, 0, test_waits(2, std::chrono::milliseconds(100)));
  const CollectiveError error = error_of(*transport, barrier);
  EXPECT_EQ(error.failure(), CollectiveFailure::kLimit) << error.what();
  EXPECT_EQ(error.rank(), 1);
}

struct DifferentCalls {
  const char* name;
  std::function<void(Transport&)> others;
  std::function<void(Transport&)> rank_1;
  const char* text;  // a text that the errors of all ranks must contain
};

void reduced_floats(Transport& transport, Reduction reduction, std::size_t elements, ElementType type = ElementType::kF32) {
  std::vector<std::byte> data(elements * 8);
  all_reduce(transport, type, reduction, data.data(), elements);
}

void broadcast_from(Transport& transport, int root) {
  std::byte data[4]{};
  broadcast(transport, ElementType::kF32, data, 1, root);
}

void sized_all_to_all(Transport& transport, std::uint64_t to_rank_2) {
  std::byte from[64]{}, to[64]{};
  const std::vector<std::uint64_t> received(3, 1);
  const std::vector<std::uint64_t> sent{1, 1, to_rank_2};
  all_to_all(transport, ElementType::kU8, from, sent, to, received);
}

TEST(Faults, DifferentCallsAreTheSameErrorOnAllRanks) {
  const std::vector<DifferentCalls> cases = {
      {"operations", barrier, [](Transport& each) { broadcast_from(each, 0); },
       "rank 0 calls barrier, and rank 1 calls broadcast of 1 F32 elements with root 0"},
      {"reductions", [](Transport& each) { reduced_floats(each, Reduction::kSum, 5); },
       [](Transport& each) { reduced_floats(each, Reduction::kMax, 5); },
       "all-reduce (sum) of 5 F32 elements, and rank 1 calls all-reduce (max) of 5"},
      {"sizes", [](Transport& each) { reduced_floats(each, Reduction::kSum, 5000); },
       [](Transport& each) { reduced_floats(each, Reduction::kSum, 1); }, "all-reduce (sum) of 1 F32 elements"},
      {"types", [](Transport& each) { reduced_floats(each, Reduction::kSum, 5); },
       [](Transport& each) { reduced_floats(each, Reduction::kSum, 5, ElementType::kI32); }, "of 5 I32 elements"},
      {"roots", [](Transport& each) { broadcast_from(each, 2); }, [](Transport& each) { broadcast_from(each, 0); },
       "with root 2, and rank 1 calls broadcast of 1 F32 elements with root 0"},
      {"sizes of an all-to-all", [](Transport& each) { sized_all_to_all(each, 1); },
       [](Transport& each) { sized_all_to_all(each, 4); }, "rank 1 sends 4 elements to rank 2, which expects 1"},
  };
  for (const DifferentCalls& each : cases) {
    SCOPED_TRACE(each.name);
    const auto segment = created(small_sizes(kRanks));
    const auto errors = errors_of_ranks(segment, /*other=*/-1, test_waits(kRanks), [&](Transport& transport) {
      barrier(transport);
      (transport.rank() == 1 ? each.rank_1 : each.others)(transport);
    });
    ASSERT_EQ(errors.size(), 3u);
    for (const CollectiveError& error : errors) {
      EXPECT_EQ(error.failure(), CollectiveFailure::kMismatch);
      EXPECT_NE(std::string(error.what()).find(each.text), std::string::npos) << error.what();
    }
  }
}

TEST(Faults, AMessageOfAnotherSizeIsAMismatch) {
  const auto errors = errors_of_ranks(created(small_sizes(2)), -1, test_waits(2), [](Transport& transport) {
    Messages messages(transport);
    std::byte data[8]{};
    if (transport.rank() == 0) messages.send(1, 5, std::span(data, 4));
    if (transport.rank() == 1) messages.receive(0, 5, std::span(data, 8));
  });
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].failure(), CollectiveFailure::kMismatch);
  EXPECT_STREQ(errors[1].what(),
               "rank 0 has sent 4 bytes with tag 5, and rank 1 expects 8 bytes. Pass the same size on both ranks");
}

TEST(Faults, AReductionThatTheTypeLacksIsRefused) {
  run_ranks(small_sizes(1), [](SharedTransport& transport) {
    EXPECT_THROW(reduced_floats(transport, Reduction::kAverage, 1, ElementType::kI32), std::invalid_argument);
    EXPECT_THROW(reduced_floats(transport, Reduction::kXor, 1), std::invalid_argument);
  });
}

// Returns true if a process has a descriptor of this file.
bool is_open_anywhere(const struct stat& file) {
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    std::filesystem::directory_iterator each(process.path() / "fd", error), end;
    for (; !error && each != end; each.increment(error)) {
      struct stat opened {};
      if (::stat(each->path().c_str(), &opened) == 0 && opened.st_dev == file.st_dev && opened.st_ino == file.st_ino)
        return true;
    }
  }
  return false;
}

std::vector<std::string> names_in_dev_shm() {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm", error)) names.push_back(file.path().filename());
  return names;
}

TEST(Faults, NothingRemainsAfterAllRanksWereKilled) {
  struct stat file {};
  {
    auto segment = created(small_sizes(2));
    ASSERT_EQ(::fstat(segment->fd(), &file), 0);
    std::vector<RankProcess> children;
    for (const int rank : {0, 1}) {
      children.emplace_back([&] {
        const auto transport = attached(segment, rank, test_waits(2));
        make_all_calls(*transport);
        return ::raise(SIGKILL);
      });
    }
    EXPECT_TRUE(is_open_anywhere(file));
    for (RankProcess& child : children) EXPECT_EQ(child.wait(), 128 + SIGKILL);
  }
  EXPECT_FALSE(is_open_anywhere(file));
  for (const std::string& name : names_in_dev_shm()) EXPECT_EQ(name.find("ddprun-collectives"), std::string::npos);
}

}  // namespace
}  // namespace ddprun::trainer::collectives
