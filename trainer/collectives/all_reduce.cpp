// Implements all-reduce and reduce. Each rank reduces one slice of each chunk. If the inputs of all ranks are exposed (other
// ranks can access them, exchange.hpp), a rank writes its result directly into the buffers of all ranks. If not, it writes the
// result into its slot, and the other ranks copy the result from there. For a short input, every rank reduces the whole input,
// which saves a phase.
#include <algorithm>
#include <cstring>
#include <vector>

#include "trainer/collectives/collectives.hpp"
#include "trainer/collectives/exchange.hpp"
#include "trainer/collectives/reduction.hpp"

namespace ddprun::trainer::collectives {
namespace {

constexpr std::uint64_t kShortBytes = 16 << 10;
constexpr std::uint64_t kLineBytes = 64;

class ReduceExchange final : public Exchange {
 public:
  ReduceExchange(Transport& transport, const OperationDescriptor& operation, std::byte* data)
      : Exchange(transport, operation, 1, data),
        short_(operation.elements * type_bytes() <= std::min<std::uint64_t>(kShortBytes, transport.slot_bytes())),
        data_(data) {}

 private:
  bool is_output(int rank) const { return operation().root == kNoRoot || operation().root == rank; }

  // Without a combine step, a rank would write its result into an exposed input that another rank may still read.
  bool combines() const override { return !short_ || any_exposed(); }

  // Returns the slice of a chunk that a rank reduces. Slices start at cache lines, so that two ranks don't write to the same
  // line.
  Chunk slice_of(int rank, const Chunk& chunk) const {
    const std::uint64_t line = kLineBytes / type_bytes();
    const auto divisor = static_cast<std::uint64_t>(ranks()) * line;
    const std::uint64_t length = (chunk.elements() + divisor - 1) / divisor * line;
    const std::uint64_t begin = std::min(chunk.end, chunk.begin + static_cast<std::uint64_t>(rank) * length);
    return {.begin = begin, .end = std::min(chunk.end, begin + length), .slot = chunk.slot};
  }

  // Copies this rank's data into its slot, except for the slice that this rank reduces itself: no other rank reads that slice.
  void write(const Chunk& chunk) override {
    const Chunk own = short_ ? Chunk{chunk.begin, chunk.begin, chunk.slot} : slice_of(rank(), chunk);
    copy(in_slot(rank(), 0, chunk), chunk.begin, own.begin, chunk.begin);
    copy(in_slot(rank(), 0, chunk), own.end, chunk.end, chunk.begin);
  }

  void copy(std::byte* slot, std::uint64_t begin, std::uint64_t end, std::uint64_t of_slot) {
    if (begin < end)
      std::memcpy(slot + (begin - of_slot) * type_bytes(), data_ + begin * type_bytes(), (end - begin) * type_bytes());
  }

  void reduce_slice(const Chunk& chunk, const Chunk& slice, std::span<std::byte* const> outputs) const {
    std::vector<const std::byte*> inputs;
    for (int from = 0; from < ranks(); ++from) {
      inputs.push_back(input_of(from, 0, chunk) + (slice.begin - chunk.begin) * type_bytes());
    }
    reduce_in_order(operation().type, operation().reduction, inputs, outputs, slice.elements());
  }

  void combine(const Chunk& chunk) override {
    const Chunk slice = slice_of(rank(), chunk);
    std::vector<std::byte*> outputs;
    if (all_exposed()) {
      for (int to = 0; to < ranks(); ++to) {
        if (is_output(to)) outputs.push_back(exposed_input(to) + slice.begin * type_bytes());
      }
    } else {
      if (is_output(rank())) outputs.push_back(data_ + slice.begin * type_bytes());
      outputs.push_back(in_slot(rank(), 0, chunk) + (slice.begin - chunk.begin) * type_bytes());
    }
    reduce_slice(chunk, slice, outputs);
  }

  void read(const Chunk& chunk) override {
    if (!is_output(rank()) || all_exposed()) return;
    if (!combines()) {
      std::byte* const output = data_ + chunk.begin * type_bytes();
      reduce_slice(chunk, chunk, {&output, 1});
      return;
    }
    for (int from = 0; from < ranks(); ++from) {
      const Chunk slice = slice_of(from, chunk);
      if (from == rank() || slice.elements() == 0) continue;
      std::memcpy(data_ + slice.begin * type_bytes(), in_slot(from, 0, chunk) + (slice.begin - chunk.begin) * type_bytes(),
                  slice.elements() * type_bytes());
    }
  }

  bool short_;
  std::byte* data_;
};

}  // namespace

void all_reduce(Transport& transport, ElementType type, Reduction reduction, std::byte* data, std::uint64_t elements) {
  const OperationDescriptor operation{
      .kind = OperationKind::kAllReduce, .type = type, .reduction = reduction, .elements = elements};
  check_reduction(operation);
  ReduceExchange(transport, operation, data).run();
}

void reduce(Transport& transport, ElementType type, Reduction reduction, std::byte* data, std::uint64_t elements, int root) {
  const OperationDescriptor operation{
      .kind = OperationKind::kReduce, .type = type, .reduction = reduction, .root = root, .elements = elements};
  check_reduction(operation);
  ReduceExchange(transport, operation, data).run();
}

}  // namespace ddprun::trainer::collectives
