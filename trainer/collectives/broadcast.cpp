// Implements barrier and broadcast.
#include <cstring>

#include "trainer/collectives/collectives.hpp"
#include "trainer/collectives/exchange.hpp"

namespace ddprun::trainer::collectives {
namespace {

class BarrierExchange final : public Exchange {
 public:
  explicit BarrierExchange(Transport& transport) : Exchange(transport, {}, 1, nullptr) {}

 private:
  void read(const Chunk&) override {}
};

class BroadcastExchange final : public Exchange {
 public:
  BroadcastExchange(Transport& transport, const OperationDescriptor& operation, std::byte* data)
      : Exchange(transport, operation, 1, data), data_(data) {}

 private:
  void read(const Chunk& chunk) override {
    if (has_input(rank()) || chunk.elements() == 0) return;
    std::memcpy(data_ + chunk.begin * type_bytes(), input_of(operation().root, 0, chunk), chunk.elements() * type_bytes());
  }

  std::byte* data_;
};

}  // namespace

void barrier(Transport& transport) {
  BarrierExchange(transport).run();
}

void broadcast(Transport& transport, ElementType type, std::byte* data, std::uint64_t elements, int root) {
  BroadcastExchange(transport, {.kind = OperationKind::kBroadcast, .type = type, .root = root, .elements = elements}, data)
      .run();
}

}  // namespace ddprun::trainer::collectives
