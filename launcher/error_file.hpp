// What a Python worker said about its failure: torch.distributed.elastic's @record writes it to TORCHELASTIC_ERROR_FILE. Read
// by the agent after a failed round. The content is the worker's, so it is bounded and never trusted.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

// The message of either format: {"message": {"message": "Type: text", ...}} or {"message": "text", ...}; nullopt for anything
// else.
std::optional<std::string> parse_error_file(std::string_view content);

// Reads at most 64 KiB of the file; nullopt when it is absent, larger or not such a file.
std::optional<std::string> read_error_file(const std::filesystem::path& file);

}  // namespace ddprun
