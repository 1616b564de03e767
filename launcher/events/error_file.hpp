// What a Python worker said about its failure: torch.distributed.elastic's @record writes it to TORCHELASTIC_ERROR_FILE. The
// content is the worker's, so it is bounded and never trusted. Pure; workers/error_file_reader.hpp reads the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

struct ErrorFile {
  std::filesystem::path path{};
  std::string message{};                       // "ValueError: x", or whatever a flat file says
  std::string call_stack{};                    // Python's; empty when the file has none
  std::optional<std::int64_t> timestamp_ns{};  // as the file says
  bool whole_seconds = false;                  // Python writes them so
  std::int64_t written_ns = 0;                 // the latest moment at which the file can have been written; 0: unknown
};

// Either format: {"message": {"message": "Type: text", "extraInfo": {"py_callstack": .., "timestamp": "10"}}} or
// {"message": "text", "timestamp": 10}; nullopt for anything else.
std::optional<ErrorFile> parse_error_file(std::string_view content);

// When the worker failed: by the file's own timestamp, the fraction of a second taken from when the file was written; never
// after its process ended. Without a timestamp that is all that is known. Pure.
std::int64_t time_of_failure(const ErrorFile& file, std::int64_t ended_ns);

}  // namespace ddprun
