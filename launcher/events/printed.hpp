// Numbers in the formats of printf(3), as text. The compiler compares the values with the format. It is used for the console's
// lines.
#pragma once

#include <string>

namespace ddprun {

[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);  // NOLINT(cert-dcl50-cpp): checked, as printf is

}  // namespace ddprun
