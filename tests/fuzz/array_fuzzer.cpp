// Reads random bytes as a NumPy file: first its header, then a tensor whose data is the memory-mapped values.
#include <ATen/ops/sum.h>

#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/tables/array_file.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    fuzz::folder().write("x.npy", fuzz::text_of(data, size));
    const at::Tensor array = read_array(fuzz::folder().path(), "x.npy");
    if (array.numel() > 0) (void)array.reshape({-1})[array.numel() - 1].item<double>();
  });
}
