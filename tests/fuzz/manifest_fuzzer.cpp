// Reads random bytes as the manifest of a checkpoint. A valid manifest must stay the same when it is encoded and decoded
// again. A manifest contains a checksum of its content, which would be wrong after almost every mutation. So the fuzzer first
// inserts the correct checksum.
#include <nlohmann/json.hpp>

#include "tests/fuzz/file_of_bytes.hpp"
#include "trainer/checkpoint/hashed_file.hpp"
#include "trainer/checkpoint/manifest.hpp"

using namespace ddprun;
using namespace ddprun::trainer;

namespace {

std::string with_own_checksum(std::string_view text) {
  constexpr const char* kOwnChecksum = "xxh3_128";  // the same name as in manifest.cpp
  nlohmann::json value = nlohmann::json::parse(text, nullptr, false);
  if (!value.is_object()) return std::string(text);
  value.erase(kOwnChecksum);
  value[kOwnChecksum] = xxh3_128_of(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  return fuzz::accepted_or_refused([&] {
    const Manifest manifest = decode_manifest(with_own_checksum(fuzz::text_of(data, size)));
    const std::string once = encode_manifest(manifest);
    if (encode_manifest(decode_manifest(once)) != once) std::abort();
  });
}
