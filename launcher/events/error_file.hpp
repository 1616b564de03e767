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
  std::string message{};                       // "ValueError: x", or the text of a flat file
  std::string call_stack{};                    // Python's; empty when the file has none
  std::optional<std::int64_t> timestamp_ns{};  // as the file says
  bool whole_seconds = false;                  // Python writes whole seconds
  std::int64_t written_ns = 0;                 // the latest moment at which the file can have been written; 0: unknown
};

// Either format: {"message": {"message": "Type: text", "extraInfo": {"py_callstack": .., "timestamp": "10"}}} or
// {"message": "text", "timestamp": 10}; nullopt for anything else.
std::optional<ErrorFile> parse_error_file(std::string_view content);

// When the worker failed. The file's own timestamp says the second, and the time of writing says the fraction; the result is
// never later than the end of the process. Without a timestamp it is that end. Pure.
std::int64_t time_of_failure(const ErrorFile& file, std::int64_t ended_ns);

}  // namespace ddprun
