// Replaces a file atomically: after a crash, either the old or the new file is complete. The steps are: create a temporary file
// in the same folder, write, fsync, rename, and fsync of the folder. All functions throw std::system_error with the path.
#pragma once

#include <filesystem>
#include <string_view>

namespace ddprun {

void write_file_atomically(const std::filesystem::path& file, std::string_view content, unsigned mode = 0644);

// Replaces a file in the same way, but without fsync: after a crash of the machine the new file may be empty. Use it for files
// that are rewritten every few seconds and can be generated again.
void replace_file_unsynced(const std::filesystem::path& file, std::string_view content, unsigned mode = 0644);

// Writes a file that a user has named. If the path exists but is not a regular file (such as /dev/stdout, a pipe or a link),
// writes the content into it, because a rename would replace it. But a link of another user (common/shared_folder) is
// replaced. Returns true if a regular file was created or replaced, and false if the content was written into an existing
// file.
bool write_named_file(const std::filesystem::path& file, std::string_view content);

// Creates `folder` and its missing parents, and syncs the parent of each new folder. Without the sync, a power failure can
// remove a new folder together with all files in it.
void make_durable_folder(const std::filesystem::path& folder);

void fsync_directory(const std::filesystem::path& directory);

}  // namespace ddprun
