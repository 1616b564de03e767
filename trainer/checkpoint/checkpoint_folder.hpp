// The names in a checkpoints folder: step-%09d, `latest`, and temporary ones. Internal to trainer/checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

inline constexpr std::string_view kTemporaryPrefix = ".tmp-";  // of whatever is not published
inline constexpr std::string_view kRemovedPrefix = ".tmp-remove-";
inline constexpr const char* kLatest = "latest";

std::string folder_name(std::int64_t step);
// The step of a checkpoint's folder, by its name; nothing for any other name.
std::optional<std::int64_t> step_of(const std::string& name);
// The name under which a folder was published: without the .superseded, .bad-2 that it was given since.
std::string published_name(const std::string& name);

struct Published {
  std::int64_t step = 0;
  std::filesystem::path path;
};
// Empty where there is no such folder. Throws std::system_error when it can't be listed.
std::vector<Published> newest_first(const std::filesystem::path& checkpoints_dir);

// Replaced by rename, so there is no moment without `latest`. Throws std::system_error.
void point_latest_to(const std::filesystem::path& checkpoints_dir, const std::string& name);

// Renames it to a temporary name first, so that a kill in between leaves no folder that looks like what it was and is not.
// The reason when it can't be removed, else empty; throws nothing.
std::string remove_folder(const std::filesystem::path& path);

}  // namespace ddprun::trainer
