// Reads the TORCHELASTIC_ERROR_FILE of a failed worker (events/error_file.hpp). Copies the file of the first cause to the error
// file that ddprun's own caller has named.
#pragma once

#include <filesystem>
#include <optional>

#include "launcher/events/error_file.hpp"

namespace ddprun {

// Reads at most 1 MiB of the file. Returns nullopt if it is absent, larger, or not an error file.
std::optional<ErrorFile> read_error_file(const std::filesystem::path& file);

// Copies the file to `to`, which ddprun's caller reads. If "message" is an object, its "errorCode" is set to `exit_code`, as
// under torchrun (negative: a signal; 0: unchanged). Returns false if `from` can't be read, or `to` can't be written
// completely.
bool copy_error_file(const std::filesystem::path& from, const std::filesystem::path& to, int exit_code);

}  // namespace ddprun
