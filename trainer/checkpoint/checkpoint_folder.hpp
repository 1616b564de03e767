// The names in a checkpoints folder: step-%09d, `latest`, and temporary ones. Only trainer/checkpoint uses this file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

inline constexpr std::string_view kTemporaryPrefix = ".tmp-";  // prefix of everything that is not published
inline constexpr std::string_view kRemovedPrefix = ".tmp-remove-";
inline constexpr const char* kLatest = "latest";

std::string folder_name(std::int64_t step);
// Returns the step from a checkpoint folder's name; nullopt for any other name.
std::optional<std::int64_t> step_of(const std::string& name);
// Returns the name under which a folder was published, without a later suffix such as .superseded or .bad-2.
std::string published_name(const std::string& name);

struct Published {
  std::int64_t step = 0;
  std::filesystem::path path;
};
// Returns the published checkpoints of the folder, newest first. The list is empty if the folder does not exist. Throws
// std::system_error if the folder can't be listed.
std::vector<Published> newest_first(const std::filesystem::path& checkpoints_dir);

// Points `latest` to the folder `name`. A rename replaces the link, so that a link exists at every moment. Throws
// std::system_error.
void point_latest_to(const std::filesystem::path& checkpoints_dir, const std::string& name);

// Renames the folder to a temporary name before it removes the content. So a process that is killed during the removal leaves
// no incomplete folder under a published name. Returns the reason if the folder can't be removed, and an empty string
// otherwise. Does not throw.
std::string remove_folder(const std::filesystem::path& path);

}  // namespace ddprun::trainer
