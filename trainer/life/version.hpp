// What this program says that it is: to people (ddptrain --version) and to the agent (Hello).
#pragma once

#include <torch/version.h>

#include <string>

#include "common/base/version.hpp"

namespace ddprun::trainer {

// "0.1.0 (LibTorch 2.11.0)"
inline std::string version_with_torch() {
  return std::string(kVersion) + " (LibTorch " + TORCH_VERSION + ")";
}

}  // namespace ddprun::trainer
