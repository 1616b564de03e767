// Provides random bytes from the kernel's cryptographic generator, for tokens, ids and keys.
#pragma once

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "common/base/error.hpp"

namespace ddprun {

// Returns kSize random bytes. Throws InternalError if getrandom(2) fails.
template <std::size_t kSize>
std::array<std::uint8_t, kSize> random_bytes() {
  std::array<std::uint8_t, kSize> bytes{};
  std::size_t filled = 0;
  while (filled < kSize) {
    const ssize_t count = ::getrandom(bytes.data() + filled, kSize - filled, 0);
    if (count < 0 && errno != EINTR) throw InternalError("the kernel returned no random numbers (getrandom)");
    if (count > 0) filled += static_cast<std::size_t>(count);
  }
  return bytes;
}

}  // namespace ddprun
