// What this program says that it is: to people (ddptrain --version) and to the agent (Hello).
#pragma once

#include <string>

#include "common/base/version.hpp"

namespace ddprun::trainer {

// "0.1.0 (LibTorch 2.11.0)"
std::string version_with_torch();

}  // namespace ddprun::trainer
