// Implements `ddprun init cpp FOLDER`, which creates a project for a custom worker program. Its four files can be built and run
// without changes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ddprun {

// Writes the files and returns their names. The folder's name becomes the name of the program. Throws UsageError if the name
// is not valid for a program, or if the folder is not empty or can't be written.
std::vector<std::string> write_new_project(const std::filesystem::path& folder);

}  // namespace ddprun
