// Reads random bytes as a safetensors file: first the list of its tensors, then their values.
#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/checkpoint/safetensors.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    const auto file = fuzz::folder().write("model.safetensors", fuzz::text_of(data, size));
    (void)list_safetensors(file);
    (void)read_safetensors(file);
  });
}
