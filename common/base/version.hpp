// The one place of the product's version.
#pragma once

namespace ddprun {
inline constexpr const char* kVersion = "0.1.0";
}
