// Which worker program of the user's own trains in a run directory: worker.json there. A rebuilt program may compute something
// else, so a start with another one than the last says so. launcher/start calls it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "launcher/own_worker/own_worker.hpp"

namespace ddprun {

// A digest of the file's content, in lower-case hexadecimal. Throws UsageError when it can't be read.
std::string digest_of_program(const std::filesystem::path& program);

// Writes into that file what trains now, where that is another program than before. Returns what to tell the user: that it is
// another one, or that it can't be written down; empty: nothing. Without a worker (ddptrain trains) the file is left as it is.
std::string keep_worker_record(const std::filesystem::path& file, const std::optional<OwnWorker>& worker);

}  // namespace ddprun
