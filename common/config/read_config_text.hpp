// Reads the text of a file that a user wrote for ddprun: a train.json, a restart policy. Parsers call it.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// `kind` is the kind of text for messages, such as "config". Throws UsageError if the file can't be read, is a folder, or is
// too large for this kind. Any thread.
std::string read_config_text(const std::filesystem::path& file, const std::string& kind);

}  // namespace ddprun
