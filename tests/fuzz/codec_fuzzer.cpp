// Decodes random bytes as a message between nodes. The codec must throw ProtocolError, or return a message that stays the same
// when it is encoded and decoded again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rendezvous/wire/codec.hpp"

using namespace ddprun::rendezvous;

namespace {

template <class Decode>
void round_trip(std::string_view frame, Decode decode) {
  const auto message = decode(frame);
  const std::string once = encode(message);
  const std::string twice = encode(decode(once));
  if (once != twice) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view frame(reinterpret_cast<const char*>(data), size);
  try {
    if ((data[0] & 0x80) != 0) {
      round_trip(frame, [](std::string_view bytes) { return decode_from_coordinator(bytes); });
    } else {
      round_trip(frame, [](std::string_view bytes) { return decode_from_member(bytes); });
    }
  } catch (const ProtocolError&) {
  }
  return 0;
}
