// Bytes from anybody into the codec: it throws ProtocolError or gives a message that encodes to what decodes to the same again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/codec.hpp"

using namespace ddprun::rendezvous;

namespace {

template <class Decode>
void round_trip(std::string_view frame, Decode decode) {
  const auto message = decode(frame);
  const std::string once = encode(message);
  const std::string twice = encode(decode(std::string_view(once).substr(4)));
  if (once != twice) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FrameDecoder decoder;
  // Fed in two pieces, so that the seam is somewhere else each time.
  const std::size_t seam = size == 0 ? 0 : data[0] % size;
  const auto all = std::as_bytes(std::span(data, size));
  try {
    for (const auto piece : {all.first(seam), all.subspan(seam)}) {
      decoder.feed(piece);
      while (const auto frame = decoder.next()) {
        const bool of_coordinator = (static_cast<unsigned char>(frame->front()) & 0x80) != 0;
        if (of_coordinator) {
          round_trip(*frame, [](std::string_view bytes) { return decode_from_coordinator(bytes); });
        } else {
          round_trip(*frame, [](std::string_view bytes) { return decode_from_member(bytes); });
        }
      }
    }
  } catch (const ProtocolError&) {
  }
  return 0;
}
