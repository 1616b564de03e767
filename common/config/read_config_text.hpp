// The text of a file that a person wrote for ddprun to obey: a train.json, a restart policy. Called before it is parsed.
#pragma once

#include <filesystem>
#include <string>

namespace ddprun {

// `kind` names it in errors: "config". Throws UsageError for what can't be read, is a folder, or is too large to be one. Any
// thread.
std::string read_config_text(const std::filesystem::path& file, const std::string& kind);

}  // namespace ddprun
