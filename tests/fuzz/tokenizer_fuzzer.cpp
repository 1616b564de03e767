// Reads random bytes as a tokenizer.json, and encodes and decodes a text with it.
#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/tokens/vocabulary_file.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    const auto file = fuzz::folder().write("tokenizer.json", fuzz::text_of(data, size));
    const auto vocabulary = read_vocabulary(file);
    for (const std::uint32_t token : vocabulary->encode("Two words,\n a \xc3\xa9 and <|endoftext|>")) {
      (void)vocabulary->bytes_of(token);
    }
  });
}
