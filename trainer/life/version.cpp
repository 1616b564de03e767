// Implementation of version.hpp.
#include "trainer/life/version.hpp"

#include <torch/version.h>

namespace ddprun::trainer {

// `ddprun --version` finds the mark in this program's file (launcher/commands/version_text.cpp), so it has to be there in one
// piece.
[[gnu::used]] static const char kBuiltWith[] = DDPRUN_LIBTORCH_MARK TORCH_VERSION;

std::string version_with_torch() {
  return std::string(kVersion) + " (LibTorch " + TORCH_VERSION + ")";
}

}  // namespace ddprun::trainer
