// A checkpoint file may contain pieces of larger tensors. A piece is a range of the elements of the flattened tensor. The files
// of one role together contain each element of each tensor exactly once, regardless of the number of ranks that wrote them. So
// any number of ranks can read a state that any other number has saved. load_checkpoint() uses this code.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

struct TensorPiece {
  std::vector<std::int64_t> shape;  // shape of the whole tensor
  std::int64_t begin = 0;           // index of the piece's first element in the whole tensor
  bool operator==(const TensorPiece&) const = default;
};

// The pieces of one file, by tensor name. A tensor without an entry is stored whole.
using TensorPieces = std::map<std::string, TensorPiece>;

// Joins pieces to whole tensors. It allocates a whole tensor only after all of its elements were found. Otherwise a damaged
// shape in a manifest could cause an out-of-memory error, and the checkpoint would not be reported as bad.
class WholeTensors {
 public:
  // Adds the tensors of one file. Throws UsageError if a piece does not fit its tensor or overlaps an earlier one.
  void add(std::vector<NamedTensor> tensors, const TensorPieces& pieces);
  // Returns all tensors. Throws UsageError if an element is missing from all files.
  std::vector<NamedTensor> take() &&;

 private:
  struct Part {
    std::int64_t end = 0;
    at::Tensor tensor;
  };
  struct PartialTensor {
    std::vector<std::int64_t> shape;
    std::int64_t elements = 0;
    at::ScalarType type = at::kFloat;
    std::map<std::int64_t, Part> there;  // pieces that were added so far; the key is the index of a piece's first element
  };
  void add_piece(const NamedTensor& entry, const TensorPiece& piece);

  std::vector<NamedTensor> whole_;
  std::map<std::string, PartialTensor> partial_;
};

}  // namespace ddprun::trainer
