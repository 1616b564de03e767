// Implements all-to-all with parts of any size. The ranks first exchange the sizes, so that all ranks find the same mismatch
// and use the same number of chunks.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "common/base/check.hpp"
#include "trainer/collectives/collectives.hpp"
#include "trainer/collectives/exchange.hpp"

namespace ddprun::trainer::collectives {
namespace {

using Counts = std::vector<std::uint64_t>;  // one per rank

class AllToAllExchange final : public Exchange {
 public:
  // `operation.elements` is the size of the largest part of any rank. `input` is null if a part is smaller.
  AllToAllExchange(Transport& transport, const OperationDescriptor& operation, const std::byte* input, const std::byte* from,
                   Counts sent, std::byte* to, Counts received)
      : Exchange(transport, operation, transport.ranks(), input),
        from_(from),
        sent_(std::move(sent)),
        to_(to),
        received_(std::move(received)) {}

 private:
  static std::uint64_t clamped(const Chunk& chunk, std::uint64_t count) {
    return std::min(chunk.end, count) - std::min(chunk.begin, count);
  }
  std::size_t before(const Counts& counts, int rank, const Chunk& chunk) const {
    return (std::accumulate(counts.begin(), counts.begin() + rank, std::uint64_t{0}) + chunk.begin) * type_bytes();
  }

  void write(const Chunk& chunk) override {
    for (int to = 0; to < ranks(); ++to) {
      const std::uint64_t elements = clamped(chunk, sent_[static_cast<std::size_t>(to)]);
      if (to == rank() || elements == 0) continue;
      std::memcpy(in_slot(rank(), to, chunk), from_ + before(sent_, to, chunk), elements * type_bytes());
    }
  }

  void read(const Chunk& chunk) override {
    for (int from = 0; from < ranks(); ++from) {
      const std::uint64_t elements = clamped(chunk, received_[static_cast<std::size_t>(from)]);
      if (elements == 0) continue;
      const std::byte* const input = from == rank() ? from_ + before(sent_, from, chunk) : input_of(from, rank(), chunk);
      std::memcpy(to_ + before(received_, from, chunk), input, elements * type_bytes());
    }
  }

  const std::byte* from_;
  Counts sent_;
  std::byte* to_;
  Counts received_;
};

std::uint64_t largest_agreed(Transport& transport, const Counts& sent, const Counts& received) {
  const auto ranks = static_cast<std::size_t>(transport.ranks());
  Counts own = sent;
  own.insert(own.end(), received.begin(), received.end());
  Counts all(ranks * own.size());
  all_gather(transport, ElementType::kI64, reinterpret_cast<const std::byte*>(own.data()),
             reinterpret_cast<std::byte*>(all.data()), own.size());
  std::uint64_t largest = 0;
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::uint64_t is_sent = all[from * own.size() + to];
      const std::uint64_t is_expected = all[to * own.size() + ranks + from];
      if (is_sent != is_expected) {
        transport.fail_mismatch("in an all-to-all, rank " + std::to_string(from) + " sends " + std::to_string(is_sent) +
                                " elements to rank " + std::to_string(to) + ", which expects " + std::to_string(is_expected) +
                                ". Pass the same sizes on both ranks");
      }
      largest = std::max(largest, is_sent);
    }
  }
  return largest;
}

}  // namespace

void all_to_all(Transport& transport, ElementType type, const std::byte* from, std::byte* to, std::uint64_t elements) {
  const Counts counts(static_cast<std::size_t>(transport.ranks()), elements);
  AllToAllExchange(transport, {.kind = OperationKind::kAllToAll, .type = type, .elements = elements}, from, from, counts, to,
                   counts)
      .run();
}

void all_to_all(Transport& transport, ElementType type, const std::byte* from, std::span<const std::uint64_t> sent,
                std::byte* to, std::span<const std::uint64_t> received) {
  check(sent.size() == static_cast<std::size_t>(transport.ranks()) && received.size() == sent.size(),
        "an all-to-all needs one size for each rank");
  Counts sent_counts(sent.begin(), sent.end());
  Counts received_counts(received.begin(), received.end());
  const std::uint64_t largest = largest_agreed(transport, sent_counts, received_counts);
  AllToAllExchange(transport, {.kind = OperationKind::kAllToAll, .type = type, .elements = largest}, nullptr, from,
                   std::move(sent_counts), to, std::move(received_counts))
      .run();
}

}  // namespace ddprun::trainer::collectives
