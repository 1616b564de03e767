// Writes a file so that a crash leaves the old or the new one, never a half: temporary file in the same folder, write, fsync,
// rename, fsync of the folder. Throws std::system_error with the path (ENOSPC, EROFS, ...).
#pragma once

#include <filesystem>
#include <string_view>

namespace ddprun {

void write_file_atomically(const std::filesystem::path& file, std::string_view content, unsigned mode = 0644);
void fsync_directory(const std::filesystem::path& directory);

}  // namespace ddprun
