// Reads random bytes as tokens. The first byte selects the kind of file (.bin or text) and the number of bytes per token.
#include <vector>

#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/tokens/token_file.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  return fuzz::accepted_or_refused([&] {
    const char* const name = data[0] % 2 == 0 ? "tokens.bin" : "text.txt";
    const auto file = fuzz::folder().write(name, fuzz::text_of(data + 1, size - 1));
    const TokenReading reading{.width = data[0] % 4 < 2 ? std::size_t{2} : std::size_t{4}};
    const auto source = token_source(file, 4, 256, 0, "data.train_samples", reading);
    const std::vector<std::int64_t> last{source->size() - 1};
    if (source->size() > 0) (void)source->make(last, {});
  });
}
