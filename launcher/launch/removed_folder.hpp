// A temporary folder that is removed at the end of a scope. A node whose config may differ from the file of the leading node
// has its own config file in such a folder: start_training.cpp, and `ddprun join` in main().
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
