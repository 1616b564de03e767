// Folders with a name that nobody else has, which only this user can read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ddprun {

// Makes `parent`/<prefix><random letters>. Nothing, and errno, when that fails.
std::optional<std::filesystem::path> make_unique_folder(const std::filesystem::path& parent, const std::string& prefix);

// In the place for temporary files. Throws UsageError.
std::filesystem::path make_temporary_folder(const std::string& prefix);

}  // namespace ddprun
