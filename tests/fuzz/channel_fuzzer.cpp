// Passes random bytes in chunks to the decoder of the worker channel. The decoder must throw ProtocolError, or return a
// message that stays the same when it is encoded and decoded again. Byte 0 selects the direction (from a worker or from an
// agent), and byte 1 is the length of each chunk.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>

#include "common/channel/codec.hpp"

using namespace ddprun::channel;

namespace {

template <class Next>
auto decode_whole(const std::string& frame, Next next) {
  Decoder decoder;
  decoder.feed(std::as_bytes(std::span(frame)));
  auto message = next(decoder);
  if (!message || next(decoder)) std::abort();
  return *message;
}

template <class Next>
void take_all(std::span<const std::byte> bytes, std::size_t piece, Next next) {
  Decoder decoder;
  while (!bytes.empty()) {
    const std::size_t size = std::min(piece, bytes.size());
    decoder.feed(bytes.first(size));
    bytes = bytes.subspan(size);
    while (const auto message = next(decoder)) {
      const std::string once = encode(*message);
      if (once != encode(decode_whole(once, next))) std::abort();
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(2);
  const std::size_t piece = data[1] + std::size_t{1};
  try {
    if ((data[0] & 1) != 0) {
      take_all(bytes, piece, [](Decoder& decoder) { return decoder.next_from_agent(); });
    } else {
      take_all(bytes, piece, [](Decoder& decoder) { return decoder.next_from_worker(); });
    }
  } catch (const ProtocolError&) {
  }
  return 0;
}
