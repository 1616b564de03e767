// The text of a file that a user wrote for ddprun: a train.json, a restart policy. Parsers call it.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// Errors name the text as `kind`, such as "config". Throws UsageError when the file can't be read, is a folder, or is too large
// to be one. Any thread.
std::string read_config_text(const std::filesystem::path& file, const std::string& kind);

}  // namespace ddprun
