// Reads what a failed worker has left in its TORCHELASTIC_ERROR_FILE (events/error_file.hpp), and copies the first cause's file
// to the error file that ddprun's own caller named.
#pragma once

#include <filesystem>
#include <optional>

#include "launcher/events/error_file.hpp"

namespace ddprun {

// Reads at most 1 MiB of the file; nullopt when it is absent, larger or not such a file.
std::optional<ErrorFile> read_error_file(const std::filesystem::path& file);

// Copies the file to `to` for ddprun's caller, with "errorCode" in the object form, as torchrun does; `exit_code` is negative
// for a signal. Returns false, and leaves `to` as it was, when something can't be read or written.
bool copy_error_file(const std::filesystem::path& from, const std::filesystem::path& to, int exit_code);

}  // namespace ddprun
