// Reads the version of LibTorch with which a ddptrain was built. `ddprun version` shows it, and `ddprun doctor` compares it
// between nodes. It is read from the program file: running ddptrain would load LibTorch, which takes time and may be missing.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ddprun {

// Returns for example "2.11.0". nullopt if the file does not contain the version, because it is a custom program or an old
// build.
std::optional<std::string> libtorch_of(const std::filesystem::path& program);

}  // namespace ddprun
