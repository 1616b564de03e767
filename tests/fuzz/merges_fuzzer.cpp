// Reads random bytes as vocab.json and merges.txt. The first zero byte separates the two files.
#include <algorithm>

#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/tokens/vocabulary_file.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    const std::string_view text = fuzz::text_of(data, size);
    const std::size_t middle = std::min(text.find(static_cast<char>(0)), text.size());
    fuzz::folder().write("vocab.json", text.substr(0, middle));
    fuzz::folder().write("merges.txt", text.substr(std::min(middle + 1, text.size())));
    const auto vocabulary = read_vocabulary(fuzz::folder().path());
    (void)vocabulary->encode("Two words");
  });
}
