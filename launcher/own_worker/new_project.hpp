// `ddprun init cpp FOLDER`: a project of four files for a worker program of the user's own, which builds and trains as it is.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddprun {

// Writes them and returns their names. The folder's name becomes that of the program. Throws UsageError when it is no name for
// a program, when the folder is there and not empty, or when it can't be written.
std::vector<std::string> write_new_project(const std::filesystem::path& folder);

}  // namespace ddprun
