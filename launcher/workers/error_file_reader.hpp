// Reads what a worker that ended badly has left in its TORCHELASTIC_ERROR_FILE (events/error_file.hpp), and hands the first
// cause's file on to whoever started ddprun itself.
#pragma once

#include <filesystem>
#include <optional>

#include "launcher/events/error_file.hpp"

namespace ddprun {

// Reads at most 1 MiB of the file; nullopt when it is absent, larger or not such a file.
std::optional<ErrorFile> read_error_file(const std::filesystem::path& file);

// Copies it to `to` for the one who started us, with "errorCode" in the object form, as torchrun does; `exit_code` is minus the
// signal for a signal. What can't be read or written is left alone. False then.
bool copy_error_file(const std::filesystem::path& from, const std::filesystem::path& to, int exit_code);

}  // namespace ddprun
