// Implements all-gather and gather.
#include <cstring>

#include "trainer/collectives/collectives.hpp"
#include "trainer/collectives/exchange.hpp"

namespace ddprun::trainer::collectives {
namespace {

class GatherExchange final : public Exchange {
 public:
  GatherExchange(Transport& transport, const OperationDescriptor& operation, const std::byte* part, std::byte* parts)
      : Exchange(transport, operation, 1, part), parts_(parts) {}

 private:
  void read(const Chunk& chunk) override {
    const bool gathers = operation().root == kNoRoot || operation().root == rank();
    if (!gathers || chunk.elements() == 0) return;
    for (int from = 0; from < ranks(); ++from) {
      std::byte* const to = parts_ + (static_cast<std::size_t>(from) * operation().elements + chunk.begin) * type_bytes();
      const std::byte* const input = input_of(from, 0, chunk);
      if (to != input) std::memcpy(to, input, chunk.elements() * type_bytes());
    }
  }

  std::byte* parts_;
};

}  // namespace

void all_gather(Transport& transport, ElementType type, const std::byte* part, std::byte* parts, std::uint64_t elements) {
  GatherExchange(transport, {.kind = OperationKind::kAllGather, .type = type, .elements = elements}, part, parts).run();
}

void gather(Transport& transport, ElementType type, const std::byte* part, std::byte* parts, std::uint64_t elements, int root) {
  GatherExchange(transport, {.kind = OperationKind::kGather, .type = type, .root = root, .elements = elements}, part, parts)
      .run();
}

}  // namespace ddprun::trainer::collectives
