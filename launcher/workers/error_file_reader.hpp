// Reads the error file of a failed worker (TORCHELASTIC_ERROR_FILE, see launcher/events/error_file.hpp). Copies the error file
// of the first cause to the path in ddprun's own TORCHELASTIC_ERROR_FILE, where ddprun's caller expects it.
#pragma once

#include <filesystem>
#include <optional>

#include "launcher/events/error_file.hpp"

namespace ddprun {

// Returns nullopt if the file is absent, is larger than 1 MiB, or does not have the format of an error file.
std::optional<ErrorFile> read_error_file(const std::filesystem::path& file);

// Copies the error file `from` to `to`. If "message" is an object, sets its "errorCode" to `exit_code`, as torchrun does. A
// negative `exit_code` is a signal. If it is 0, the "errorCode" stays unchanged. Returns false if `from` cannot be read, or if
// `to` cannot be written completely.
bool copy_error_file(const std::filesystem::path& from, const std::filesystem::path& to, int exit_code);

}  // namespace ddprun
