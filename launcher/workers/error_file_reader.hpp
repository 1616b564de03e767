// Reads what a failed worker has left in its TORCHELASTIC_ERROR_FILE (events/error_file.hpp), and copies the first cause's file
// to the error file that ddprun's own caller named.
#pragma once

#include <filesystem>
#include <optional>

#include "launcher/events/error_file.hpp"

namespace ddprun {

// Reads at most 1 MiB of the file; nullopt when it is absent, larger or not such a file.
std::optional<ErrorFile> read_error_file(const std::filesystem::path& file);

// Copies the file to `to`, which ddprun's caller reads. Where "message" is an object, its "errorCode" becomes `exit_code`, as
// under torchrun (negative: a signal; 0: unchanged). Returns false if `from` can't be read, or `to` can't be written whole.
bool copy_error_file(const std::filesystem::path& from, const std::filesystem::path& to, int exit_code);

}  // namespace ddprun
