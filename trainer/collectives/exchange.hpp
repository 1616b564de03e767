// One collective: the loop over chunks that all collectives share. The code is pure, so tests/trainer/collectives can check it
// with a model of memory.
//
// A collective derives from Exchange, and implements up to three steps for a chunk. Each rank calls run():
//
//     write     this rank copies its input into a slot, for the other ranks
//     combine   (optional) this rank reduces its slice of the inputs of all ranks
//     read      this rank reads inputs, or the reduced slices, of other ranks
//
// Between two steps, each rank publishes a phase and waits for this phase of all ranks:
//
//     write 0 | compare descriptors | write 1, combine 0 | read 0, write 2, combine 1 | read 1, write 3, combine 2 | ...
//
// Why a slot can be overwritten without another flag. A rank uses its 4 slots in turn, also across operations. So chunk k-4
// was in the slot of chunk k. A rank writes chunk k after it has waited until all ranks have published chunk k-2. Each rank
// has published chunk k-2 after it had read chunk k-4. Writing one chunk ahead lets a rank continue without waiting for the
// slowest rank of the same chunk.
//
// Exposed input. If the input lies in the data area of the segment, the other ranks read it there, and this rank writes
// nothing. If the inputs of all ranks are exposed, the whole input is one chunk. A rank returns only after the other ranks have
// read its input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trainer/collectives/transport.hpp"

namespace ddprun::trainer::collectives {

// The elements from `begin` to `end` - 1 of each piece of the input.
struct Chunk {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::size_t slot = 0;
  std::uint64_t elements() const { return end - begin; }
};

// An input consists of `pieces` pieces of `operation.elements` elements each: one piece for all ranks, or a piece per rank.
class Exchange {
 public:
  // `input` is this rank's input. If only the root has an input (broadcast, scatter), the other ranks do not read `input`.
  Exchange(Transport& transport, const OperationDescriptor& operation, int pieces, const std::byte* input);
  virtual ~Exchange() = default;
  // Throws CollectiveError.
  void run();

 protected:
  // Returns true if the collective has a combine step. Call this only after the descriptors were compared.
  virtual bool combines() const { return false; }
  // The default implementation copies all pieces, except the piece that is for this rank itself.
  virtual void write(const Chunk& chunk);
  virtual void combine(const Chunk&) {}
  virtual void read(const Chunk& chunk) = 0;

  Transport& transport() const { return transport_; }
  int rank() const { return transport_.rank(); }
  int ranks() const { return transport_.ranks(); }
  std::size_t type_bytes() const { return type_bytes_; }
  const OperationDescriptor& operation() const { return operation_; }
  bool has_input(int rank) const;
  // Returns the address of a chunk within one piece of a rank's input. This rank's input is in the caller's memory. The inputs
  // of other ranks are in the data area or in a slot.
  const std::byte* input_of(int rank, int piece, const Chunk& chunk) const;
  // Returns the address of a piece's chunk in a slot of `rank`.
  std::byte* in_slot(int rank, int piece, const Chunk& chunk) const;
  bool all_exposed() const { return all_exposed_; }
  bool any_exposed() const { return any_exposed_; }
  // Returns the address of the input of `rank`, which must be exposed.
  std::byte* exposed_input(int rank) const;

 private:
  std::uint64_t bytes_of_input() const;
  Chunk chunk_at(std::uint64_t index);
  void compare_descriptors();

  Transport& transport_;
  OperationDescriptor operation_;
  std::size_t pieces_;
  std::size_t type_bytes_;
  std::uint64_t per_chunk_;  // number of elements of each piece in a chunk
  const std::byte* input_;
  std::vector<OperationDescriptor> of_ranks_;
  bool all_exposed_ = false;
  bool any_exposed_ = false;
};

}  // namespace ddprun::trainer::collectives
