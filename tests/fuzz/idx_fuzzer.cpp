// Reads random bytes as an idx file. The first byte selects images or labels, plain or compressed.
#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/data/idx_file.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  return fuzz::accepted_or_refused([&] {
    const std::string name = "images-" + std::to_string(data[0] % 4);
    fuzz::folder().write(data[0] % 2 == 0 ? name : name + ".gz", fuzz::text_of(data + 1, size - 1));
    const IdxKind kind = data[0] % 4 < 2 ? IdxKind::kImages : IdxKind::kLabels;
    const IdxFile file = read_idx_file(fuzz::folder().path(), name, kind);
    if (file.bytes.numel() > 0) (void)file.bytes.reshape({-1})[file.bytes.numel() - 1].item<int>();
  });
}
