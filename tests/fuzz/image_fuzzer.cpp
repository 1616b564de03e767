// Decodes random bytes as a JPEG or PNG image.
#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/image_files/decode.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    const PixelRows rows = decode_image(fuzz::text_of(data, size), "image");
    if (static_cast<std::int64_t>(rows.pixels.size()) != rows.height * rows.width * PixelRows::kColours) std::abort();
  });
}
