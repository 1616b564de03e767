// Joins pieces of tensors with any order and place. The result is whole tensors or a UsageError.
#include <ATen/ops/zeros.h>

#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/checkpoint/pieces.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

// Four bytes describe a piece: the tensor's name (and whether it is a piece at all), the length of the whole tensor, the place
// of the piece in it, and the number of elements.
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
