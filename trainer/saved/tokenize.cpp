#include "trainer/saved/tokenize.hpp"

#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "common/system/atomic_file.hpp"
#include "trainer/reading/mapped_file.hpp"
#include "trainer/tokens/token_file.hpp"
#include "trainer/tokens/vocabulary_file.hpp"

namespace ddprun::trainer {

std::string tokenize(const TokenizeOptions& options) {
  if (is_text_file(options.to)) {
    throw UsageError(
        options.to.string() +
        ": expected an output file *.bin, such as train.bin: training would read a file with another ending as text");
  }
  const auto vocabulary = read_vocabulary(options.vocabulary);
  const MappedFile text(options.text);
  const std::vector<std::uint32_t> tokens = vocabulary->encode(text.bytes());
  const std::string bytes = encode_token_file(tokens, vocabulary->size());
  try {
    write_named_file(options.to, bytes);
  } catch (const std::system_error& error) {
    throw UsageError(std::string("ddptrain tokenize: ") + error.what());
  }
  return std::to_string(text.bytes().size()) + " bytes of text are " + std::to_string(tokens.size()) +
         " tokens (vocabulary size " + std::to_string(vocabulary->size()) + "), written to " + options.to.string();
}

}  // namespace ddprun::trainer
