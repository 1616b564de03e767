// Compares all collectives with closed forms: all types, 1 to 8 ranks, sizes of 0, 1, odd numbers and several chunks, and
// buffers inside and outside the segment. Inputs are small integers, so that every type represents every result exactly.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/trainer/collectives/shared_memory/test_ranks.hpp"
#include "trainer/collectives/send_receive.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::size_t kElementCounts[] = {0, 1, 3, 129, 4999};  // 4999 bytes: 2 chunks; 4999 doubles: 10 chunks

#ifdef __SANITIZE_THREAD__  // data races do not depend on the type, so fewer types are enough with the thread sanitizer
constexpr ElementType kAllTypes[] = {ElementType::kF32, ElementType::kBool};
#else
constexpr ElementType kAllTypes[] = {ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kBf16,
                                     ElementType::kI64, ElementType::kI32, ElementType::kI16, ElementType::kI8,
                                     ElementType::kU8,  ElementType::kBool};
#endif

// Calls the body for each place, type and size, in the same order on all ranks.
void for_each_buffer(SharedTransport& transport,
                     const std::function<void(DataAllocator&, Place, ElementType, std::size_t)>& body) {
  DataAllocator area(1 << 18);
  for (const Place place : kPlaces) {
    for (const ElementType type : kAllTypes) {
      for (const std::size_t elements : kElementCounts) {
        SCOPED_TRACE("place " + std::to_string(static_cast<int>(place)) + ", type " + std::string(name_of(type)) + ", " +
                     std::to_string(elements) + " elements, rank " + std::to_string(transport.rank()));
        body(area, place, type, elements);
      }
    }
  }
}

// Returns the value of an element in this test: 0 or 1 for bool, and 0 to 7 for other types.
double element(ElementType type, int rank, std::size_t index) {
  const std::size_t value = index * 3 + static_cast<std::size_t>(rank) * 5 + index / 1000;
  return static_cast<double>(type == ElementType::kBool ? value % 2 : value % 8);
}

double reduced(ElementType type, Reduction reduction, int ranks, std::size_t index) {
  double result = element(type, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const double next = element(type, rank, index);
    const auto a = static_cast<int>(result), b = static_cast<int>(next);
    switch (reduction) {
      case Reduction::kSum:
      case Reduction::kAverage:
        result = type == ElementType::kBool ? std::max(result, next) : result + next;
        break;
      case Reduction::kProduct:
        result = result * next;
        break;
      case Reduction::kMin:
        result = std::min(result, next);
        break;
      case Reduction::kMax:
        result = std::max(result, next);
        break;
      case Reduction::kAnd:
        result = a & b;
        break;
      case Reduction::kOr:
        result = a | b;
        break;
      case Reduction::kXor:
        result = a ^ b;
        break;
      case Reduction::kNone:
        break;
    }
  }
  if (reduction != Reduction::kAverage) return result;
  // The quotient is rounded to the type.
  std::byte rounded[8];
  const float quotient = static_cast<float>(result) / static_cast<float>(ranks);
  set_value(type, rounded, 0, type == ElementType::kF64 ? result / ranks : static_cast<double>(quotient));
  return value_at(type, rounded, 0);
}

class Collectives : public testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  void run(const RankBody& body) const { run_ranks(small_sizes(ranks()), body); }
};
#ifdef __SANITIZE_THREAD__
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(2, 3));
#else
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Range(1, 9));
#endif

TEST_P(Collectives, BroadcastCopiesTheDataOfTheRoot) {
  run([&](SharedTransport& transport) {
    for_each_buffer(transport, [&](DataAllocator& area, Place place, ElementType type, std::size_t elements) {
      const int root = static_cast<int>(elements) % transport.ranks();
      TestBuffer data(transport, area, place, type, elements);
      data.fill([&](std::size_t i) { return element(type, transport.rank(), i); });
      broadcast(transport, type, data.data(), elements, root);
      EXPECT_EQ(data.first_difference([&](std::size_t i) { return element(type, root, i); }), elements);
    });
  });
}

TEST_P(Collectives, AllReduceAndReduceOfEachOperation) {
  constexpr Reduction kReductions[] = {Reduction::kSum,     Reduction::kMin, Reduction::kMax, Reduction::kProduct,
                                       Reduction::kAverage, Reduction::kAnd, Reduction::kOr,  Reduction::kXor};
  run([&](SharedTransport& transport) {
    int turn = 0;
    for_each_buffer(transport, [&](DataAllocator& area, Place place, ElementType type, std::size_t elements) {
      for (const Reduction reduction : kReductions) {
        if (!can_reduce(type, reduction)) continue;
        // The product of 8 factors of up to 7 is too large for a small type.
        if (reduction == Reduction::kProduct && transport.ranks() > 2 && type != ElementType::kBool) continue;
        const int root = turn++ % transport.ranks();
        TestBuffer all(transport, area, place, type, elements), one(transport, area, place, type, elements);
        const auto input = [&](std::size_t i) { return element(type, transport.rank(), i); };
        const auto result = [&](std::size_t i) { return reduced(type, reduction, transport.ranks(), i); };
        all.fill(input);
        one.fill(input);
        all_reduce(transport, type, reduction, all.data(), elements);
        reduce(transport, type, reduction, one.data(), elements, root);
        EXPECT_EQ(all.first_difference(result), elements) << name_of(reduction);
        if (transport.rank() == root) {
          EXPECT_EQ(one.first_difference(result), elements) << name_of(reduction);
        } else {
          EXPECT_EQ(one.first_difference(input), elements) << "the input of another rank than the root has changed";
        }
      }
    });
  });
}

TEST_P(Collectives, AllGatherAndGather) {
  run([&](SharedTransport& transport) {
    const auto ranks = static_cast<std::size_t>(transport.ranks());
    for_each_buffer(transport, [&](DataAllocator& area, Place place, ElementType type, std::size_t elements) {
      const int root = static_cast<int>(elements) % transport.ranks();
      TestBuffer part(transport, area, place, type, elements);
      TestBuffer all(transport, area, Place::kCopied, type, elements * ranks);
      TestBuffer one(transport, area, Place::kCopied, type, elements * ranks);
      part.fill([&](std::size_t i) { return element(type, transport.rank(), i); });
      one.fill([](std::size_t) { return 1; });
      const auto gathered = [&](std::size_t i) { return element(type, static_cast<int>(i / elements), i % elements); };
      all_gather(transport, type, part.data(), all.data(), elements);
      EXPECT_EQ(all.first_difference(gathered), elements * ranks);
      const bool is_root = transport.rank() == root;
      gather(transport, type, part.data(), is_root ? one.data() : nullptr, elements, root);
      if (is_root) {
        EXPECT_EQ(one.first_difference(gathered), elements * ranks);
      }
    });
  });
}

TEST_P(Collectives, ReduceScatterAndScatter) {
  run([&](SharedTransport& transport) {
    const auto ranks = static_cast<std::size_t>(transport.ranks());
    const auto own = static_cast<std::size_t>(transport.rank());
    for_each_buffer(transport, [&](DataAllocator& area, Place place, ElementType type, std::size_t all_elements) {
      const std::size_t elements = std::min<std::size_t>(all_elements, 1201);
      const int root = static_cast<int>(elements) % transport.ranks();
      TestBuffer parts(transport, area, place, type, elements * ranks);
      TestBuffer part(transport, area, Place::kUnaligned, type, elements);
      parts.fill([&](std::size_t i) { return element(type, transport.rank(), i); });
      reduce_scatter(transport, type, Reduction::kSum, parts.data(), part.data(), elements);
      EXPECT_EQ(part.first_difference(
                    [&](std::size_t i) { return reduced(type, Reduction::kSum, transport.ranks(), own * elements + i); }),
                elements);
      scatter(transport, type, transport.rank() == root ? parts.data() : nullptr, part.data(), elements, root);
      EXPECT_EQ(part.first_difference([&](std::size_t i) { return element(type, root, own * elements + i); }), elements);
    });
  });
}

TEST_P(Collectives, AllToAllWithEqualAndWithDifferentSizes) {
  run([&](SharedTransport& transport) {
    const auto ranks = static_cast<std::size_t>(transport.ranks());
    const auto own = static_cast<std::size_t>(transport.rank());
    for_each_buffer(transport, [&](DataAllocator& area, Place place, ElementType type, std::size_t all_elements) {
      const std::size_t elements = std::min<std::size_t>(all_elements, 1201);
      TestBuffer from(transport, area, place, type, elements * ranks), to(transport, area, place, type, elements * ranks);
      from.fill([&](std::size_t i) { return element(type, transport.rank(), i); });
      all_to_all(transport, type, from.data(), to.data(), elements);
      EXPECT_EQ(to.first_difference([&](std::size_t i) {
        return element(type, static_cast<int>(i / elements), own * elements + i % elements);
      }),
                elements * ranks);

      // Rank a sends (a + 2 b) % 3 * elements / 2 elements to rank b.
      const auto count = [&](std::size_t a, std::size_t b) { return (a + 2 * b) % 3 * elements / 2; };
      std::vector<std::uint64_t> sent, received;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        sent.push_back(count(own, rank));
        received.push_back(count(rank, own));
      }
      all_to_all(transport, type, from.data(), sent, to.data(), received);
      std::size_t at = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        std::size_t before = 0;
        for (std::size_t other = 0; other < own; ++other) before += count(rank, other);
        for (std::size_t i = 0; i < received[rank]; ++i, ++at) {
          ASSERT_EQ(to.at(at), element(type, static_cast<int>(rank), before + i)) << "element " << i << " of rank " << rank;
        }
      }
    });
  });
}

// All ranks first send or first receive long messages, which would block in calls that wait.
TEST_P(Collectives, StartedMessagesArriveWhateverTheOrder) {
  constexpr std::size_t kLong = 40'001;  // 10 cells
  for (const bool sends_first : {true, false}) {
    for (const bool collective_between : {true, false}) {
      run([&](SharedTransport& transport) {
        Messages messages(transport);
        const int self = transport.rank(), ranks = transport.ranks();
        std::vector<std::vector<std::byte>> sent, received;
        std::vector<Messages::Started> started;
        for (int other = 0; other < ranks; ++other) {
          sent.emplace_back(kLong, static_cast<std::byte>(16 * self + other));
          received.emplace_back(kLong);
        }
        const auto start = [&](bool sends) {
          for (int other = 0; other < ranks; ++other) {
            const auto at = static_cast<std::size_t>(other);
            if (other == self) continue;
            started.push_back(sends ? messages.start_send(other, 3, sent[at], nullptr)
                                    : messages.start_receive(other, 3, received[at], nullptr));
          }
        };
        start(sends_first);
        if (collective_between) barrier(transport);
        start(!sends_first);
        for (const Messages::Started& message : started) messages.finish(message);
        for (int other = 0; other < ranks; ++other) {
          if (other == self) continue;
          const std::vector<std::byte> expected(kLong, static_cast<std::byte>(16 * other + self));
          EXPECT_EQ(received[static_cast<std::size_t>(other)], expected);
        }
        barrier(transport);
      });
    }
  }
}

// A collective advances the messages of its rank: rank 0 receives the whole message before it enters the barrier.
TEST_P(Collectives, AWaitInACollectiveAdvancesMessages) {
  run([&](SharedTransport& transport) {
    if (transport.ranks() == 1) return;
    Messages messages(transport);
    std::vector<std::byte> data(40'001, std::byte{7});
    Messages::Started message;
    if (transport.rank() == 1) message = messages.start_send(0, 1, data, nullptr);
    if (transport.rank() == 0) {
      std::vector<std::byte> copy(data.size());
      messages.receive(1, 1, copy);
      EXPECT_EQ(copy, data);
    }
    barrier(transport);
    EXPECT_TRUE(messages.has_ended(message));
  });
}

TEST_P(Collectives, StartedReceivesOfOneTagCompleteInTheirOrder) {
  run([&](SharedTransport& transport) {
    if (transport.rank() > 1) return;
    if (transport.ranks() == 1) return;
    Messages messages(transport);
    const auto value = [](int message) { return std::vector<std::byte>(9000, static_cast<std::byte>(message)); };
    if (transport.rank() == 0) {
      for (const int message : {1, 2, 3}) messages.send(1, message == 2 ? 8 : 9, value(message));
      return;
    }
    std::vector<std::vector<std::byte>> data(3, std::vector<std::byte>(9000));
    const Messages::Started first = messages.start_receive(0, 9, data[0], nullptr);
    const Messages::Started third = messages.start_receive(0, 9, data[2], nullptr);
    messages.finish(third);
    EXPECT_TRUE(messages.has_ended(first));
    messages.finish(messages.start_receive(0, 8, data[1], nullptr));
    for (const int message : {1, 2, 3}) EXPECT_EQ(data[static_cast<std::size_t>(message - 1)], value(message));
  });
}

TEST_P(Collectives, MessagesWithTagsArriveInTheOrderOfTheirTag) {
  run([&](SharedTransport& transport) {
    Messages messages(transport);
    const int next = (transport.rank() + 1) % transport.ranks();
    const int previous = (transport.rank() + transport.ranks() - 1) % transport.ranks();
    if (next == transport.rank()) return;
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4032}, std::size_t{8064}}) {
      // The sender can send two short messages with other tags before the long one, because they fit into the lane.
      const auto text = [&](int rank, int tag, std::size_t length) {
        return std::vector<std::byte>(length, static_cast<std::byte>(rank * 16 + tag));
      };
      const auto receive = [&](int tag, std::size_t length) {
        std::vector<std::byte> data(length);
        messages.receive(previous, static_cast<std::uint64_t>(tag), data);
        EXPECT_EQ(data, text(previous, tag, length));
      };
      const auto send = [&](int tag, std::size_t length) {
        messages.send(next, static_cast<std::uint64_t>(tag), text(transport.rank(), tag, length));
      };
      const bool first = transport.rank() % 2 == 0;
      if (first) {
        send(1, bytes);
        send(2, 5);
        send(1, 7);
      }
      receive(2, 5);
      receive(1, bytes);
      receive(1, 7);
      if (!first) {
        send(1, bytes);
        send(2, 5);
        send(1, 7);
      }
      barrier(transport);
    }
  });
}

// For these inputs the sum depends on the order of the additions. The results must be bit-identical to ((rank 0 + rank 1) +
// rank 2) + ...
TEST_P(Collectives, SumsAreInTheOrderOfRanksForEachSizeAndPlace) {
  const auto input = [](int rank, std::size_t i) {
    const auto hash = static_cast<std::uint32_t>(i * 2654435761u + static_cast<std::size_t>(rank) * 40503u + 12345u);
    return (static_cast<double>(hash % 2001) - 1000) * static_cast<double>(1 << (hash >> 8) % 12) / 1024;
  };
  const auto total = [](auto zero, ElementType type, int count, std::size_t i, const auto& value) {
    using T = decltype(zero);
    std::byte stored[8];
    set_value(type, stored, 0, value(0, i));
    for (int rank = 1; rank < count; ++rank) {
      std::byte other[8];
      set_value(type, other, 0, value(rank, i));
      const T sum = static_cast<T>(value_at(type, stored, 0)) + static_cast<T>(value_at(type, other, 0));
      set_value(type, stored, 0, static_cast<double>(sum));
    }
    return value_at(type, stored, 0);
  };
  run([&](SharedTransport& transport) {
    const auto ranks = static_cast<std::size_t>(transport.ranks());
    DataAllocator area(1 << 18);
    for (const ElementType type : {ElementType::kF64, ElementType::kF32, ElementType::kF16, ElementType::kBf16}) {
      for (const Place place : kPlaces) {
        for (const std::size_t elements : {1, 2, 63, 64, 65, 1000, 5003}) {
          const auto expected = [&](std::size_t i) {
            return type == ElementType::kF64 ? total(double{}, type, transport.ranks(), i, input)
                                             : total(float{}, type, transport.ranks(), i, input);
          };
          TestBuffer data(transport, area, place, type, elements);
          data.fill([&](std::size_t i) { return input(transport.rank(), i); });
          all_reduce(transport, type, Reduction::kSum, data.data(), elements);
          EXPECT_EQ(data.first_difference(expected), elements) << name_of(type) << ", place " << static_cast<int>(place);

          // A reduce-scatter must give the same bits for each element as the all-reduce.
          const std::size_t part_elements = std::min<std::size_t>(elements, 777);
          TestBuffer parts(transport, area, place, type, part_elements * ranks);
          TestBuffer part(transport, area, Place::kCopied, type, part_elements);
          parts.fill([&](std::size_t i) { return input(transport.rank(), i); });
          reduce_scatter(transport, type, Reduction::kSum, parts.data(), part.data(), part_elements);
          const std::size_t before = part_elements * static_cast<std::size_t>(transport.rank());
          EXPECT_EQ(part.first_difference([&](std::size_t i) { return expected(before + i); }), part_elements);
        }
      }
    }
  });
}

TEST_P(Collectives, DefaultSizesWithLargeBuffers) {
  SegmentSizes sizes = sizes_for(ranks(), 8 << 20);
  run_ranks(sizes, [&](SharedTransport& transport) {
    for (const bool exposed : {false, true}) {
      const std::size_t elements = (exposed ? 500'000 : 300'007);
      std::vector<float> memory(exposed ? 0 : elements);
      std::byte* const data =
          exposed ? transport.exposed_at(transport.rank(), 0, elements * 4) : reinterpret_cast<std::byte*>(memory.data());
      for (std::size_t i = 0; i < elements; ++i) set_value(ElementType::kF32, data, i, static_cast<double>(i % 1000));
      all_reduce(transport, ElementType::kF32, Reduction::kSum, data, elements);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < elements; ++i) {
        wrong += value_at(ElementType::kF32, data, i) != static_cast<double>(i % 1000) * transport.ranks();
      }
      EXPECT_EQ(wrong, 0u);
    }
  });
}

}  // namespace
}  // namespace ddprun::trainer::collectives
