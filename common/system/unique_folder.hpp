// Creates folders with a unique name, which only this user can access.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ddprun {

// Creates `parent`/<prefix><random letters>. Returns nullopt with errno set if that fails.
std::optional<std::filesystem::path> make_unique_folder(const std::filesystem::path& parent, const std::string& prefix);

// Creates a unique folder in the system's folder for temporary files. Throws UsageError if that fails.
std::filesystem::path make_temporary_folder(const std::string& prefix);

}  // namespace ddprun
