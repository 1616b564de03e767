// Formats numbers with printf(3) formats, for the console's lines. The compiler checks the arguments against the format.
#pragma once

#include <string>

namespace ddprun {

[[gnu::format(printf, 1, 2)]] std::string printed(const char* format, ...);  // NOLINT(cert-dcl50-cpp): checked, as printf is

}  // namespace ddprun
