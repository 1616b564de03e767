// Writes a file so that a crash leaves the complete old or new file: temporary file in the same folder, write, fsync, rename,
// fsync of the folder. All functions throw std::system_error with the path (ENOSPC, EROFS, ...).
#pragma once

#include <filesystem>
#include <string_view>

namespace ddprun {

void write_file_atomically(const std::filesystem::path& file, std::string_view content, unsigned mode = 0644);

// For a file named by a user. If the path exists and is not a regular file, such as /dev/stdout, a pipe or a link, it is
// written into, since a rename would replace it. A link of another user (common/shared_folder) is replaced. Returns whether the
// file is a separate regular file.
bool write_named_file(const std::filesystem::path& file, std::string_view content);

// Creates `folder` and its missing parents, and syncs the parent of each one it creates. Without the sync, a power cut can
// remove the new folder together with all files saved in it.
void make_durable_folder(const std::filesystem::path& folder);

void fsync_directory(const std::filesystem::path& directory);

}  // namespace ddprun
