// Tensors of a checkpoint's file that are pieces of larger ones: each is a range of the elements of the whole, laid out flat.
// The files of one role hold all elements of all tensors, each element once, however many ranks have written them, so what was
// saved in one division is read in any other. Used by load_checkpoint().
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

struct TensorPiece {
  std::vector<std::int64_t> shape;  // of the whole tensor
  std::int64_t begin = 0;           // the element of it with which the piece begins
  bool operator==(const TensorPiece&) const = default;
};

// By the names of a file's tensors. One that is not named here is whole.
using TensorPieces = std::map<std::string, TensorPiece>;

// Puts pieces together. A whole tensor is allocated only after all of its elements were found: a damaged shape in a manifest is
// a bad checkpoint and no lack of memory.
class WholeTensors {
 public:
  // Of one file. Throws UsageError for what can't be a piece of that tensor, or is there already.
  void add(std::vector<NamedTensor> tensors, const TensorPieces& pieces);
  // Throws UsageError for elements that no file had.
  std::vector<NamedTensor> take() &&;

 private:
  struct Part {
    std::int64_t end = 0;
    at::Tensor tensor;
  };
  struct Growing {
    std::vector<std::int64_t> shape;
    std::int64_t elements = 0;
    at::ScalarType type = at::kFloat;
    std::map<std::int64_t, Part> there;  // by their first element
  };
  void add_piece(const NamedTensor& entry, const TensorPiece& piece);

  std::vector<NamedTensor> whole_;
  std::map<std::string, Growing> growing_;
};

}  // namespace ddprun::trainer
