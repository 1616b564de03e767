// Records in worker.json which custom worker program trains in a run directory. A rebuilt program may compute something else,
// so the user gets a message when a different program than before is started. launcher/launch calls it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "launcher/custom_worker/custom_worker.hpp"

namespace ddprun {

// Returns a digest of the file's content, in lower-case hexadecimal. Throws UsageError if the program can't be read.
std::string digest_of_program(const std::filesystem::path& program);

// Updates the record if the training program differs from the recorded one. Returns a message for the user if the program is
// different, or if the record can't be written; otherwise an empty text. If `worker` is empty (ddptrain trains), the file is
// not changed.
std::string update_program_record(const std::filesystem::path& file, const std::optional<CustomWorker>& worker);

}  // namespace ddprun
