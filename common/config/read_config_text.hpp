// Reads the text of a file that a user has written for ddprun, such as a train.json or a restart policy. The parsers call it.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// Returns the text of the file. `kind` is the kind of file for messages, such as "config". Throws UsageError if the file can't
// be read, is a folder, or is larger than 4 MiB. Any thread may call it.
std::string read_config_text(const std::filesystem::path& file, const std::string& kind);

}  // namespace ddprun
