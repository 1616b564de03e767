// Joins pieces of tensors in any order and at any position. The result must be whole tensors, or the function must throw a
// UsageError.
#include <ATen/ops/zeros.h>

#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/checkpoint/pieces.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

// Four bytes describe one entry. Byte 0 selects the name of the tensor, and whether the entry is a piece or a whole tensor.
// Byte 1 is the length of the whole tensor, byte 2 is the position of the piece in the tensor, and byte 3 is the number of
// elements in the piece.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    WholeTensors whole;
    for (; size >= 4; data += 4, size -= 4) {
      const std::string name(1, static_cast<char>('a' + data[0] % 4));
      const TensorPieces pieces{{name, {.shape = {data[1]}, .begin = static_cast<std::int8_t>(data[2])}}};
      whole.add({{name, at::zeros({data[3] % 64})}}, data[0] % 8 < 4 ? pieces : TensorPieces{});
    }
    for (const NamedTensor& entry : std::move(whole).take()) (void)entry.tensor.sum().item<double>();
  });
}
