// Reads random bytes as the config.json of a Hugging Face model, and parses a train.json with model.type "auto" for this
// model.
#include "common/config/parse_config.hpp"
#include "tests/fuzz/file_of_bytes.hpp"

using namespace ddprun;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    fuzz::folder().write("config.json", fuzz::text_of(data, size));
    (void)parse_config(R"({"model": {"type": "auto", "init": "model.safetensors"}, "data": {"type": "tokens", "dir": "."}})",
                       "train.json", fuzz::folder().path());
  });
}
