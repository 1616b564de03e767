// Implements scatter and reduce-scatter. Their input has one piece for each rank.
#include <cstring>
#include <vector>

#include "trainer/collectives/collectives.hpp"
#include "trainer/collectives/exchange.hpp"
#include "trainer/collectives/reduction.hpp"

namespace ddprun::trainer::collectives {
namespace {

class ScatterExchange final : public Exchange {
 public:
  ScatterExchange(Transport& transport, const OperationDescriptor& operation, const std::byte* parts, std::byte* part)
      : Exchange(transport, operation, transport.ranks(), parts), part_(part) {}

 private:
  void read(const Chunk& chunk) override {
    if (chunk.elements() == 0) return;
    std::byte* const to = part_ + chunk.begin * type_bytes();
    const std::byte* const input = input_of(operation().root, rank(), chunk);
    if (to != input) std::memcpy(to, input, chunk.elements() * type_bytes());
  }

  std::byte* part_;
};

class ReduceScatterExchange final : public Exchange {
 public:
  ReduceScatterExchange(Transport& transport, const OperationDescriptor& operation, const std::byte* parts, std::byte* part)
      : Exchange(transport, operation, transport.ranks(), parts), part_(part) {}

 private:
  void read(const Chunk& chunk) override {
    std::vector<const std::byte*> inputs;
    for (int from = 0; from < ranks(); ++from) inputs.push_back(input_of(from, rank(), chunk));
    std::byte* const output = part_ + chunk.begin * type_bytes();
    reduce_in_order(operation().type, operation().reduction, inputs, {&output, 1}, chunk.elements());
  }

  std::byte* part_;
};

}  // namespace

void scatter(Transport& transport, ElementType type, const std::byte* parts, std::byte* part, std::uint64_t elements,
             int root) {
  ScatterExchange(transport, {.kind = OperationKind::kScatter, .type = type, .root = root, .elements = elements}, parts, part)
      .run();
}

void reduce_scatter(Transport& transport, ElementType type, Reduction reduction, const std::byte* parts, std::byte* part,
                    std::uint64_t elements) {
  const OperationDescriptor operation{
      .kind = OperationKind::kReduceScatter, .type = type, .reduction = reduction, .elements = elements};
  check_reduction(operation);
  ReduceScatterExchange(transport, operation, parts, part).run();
}

}  // namespace ddprun::trainer::collectives
