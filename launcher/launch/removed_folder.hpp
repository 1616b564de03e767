// A temporary folder that is removed at the end of a scope. start_training.cpp, and main() for `ddprun join`, write a node's
// own config file to such a folder. This config may differ from the file of the leading node.
#pragma once

#include <filesystem>
#include <system_error>

namespace ddprun {

struct RemovedFolder {
  std::filesystem::path path;  // may be empty
  ~RemovedFolder() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace ddprun
