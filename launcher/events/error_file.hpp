// The error that a Python worker reported: torch.distributed.elastic's @record writes it to TORCHELASTIC_ERROR_FILE. The worker
// controls the content, so its size is limited and it is not trusted. Pure; workers/error_file_reader.hpp reads the file.
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
  std::string call_stack{};                    // Python's call stack; empty if the file has none
  std::optional<std::int64_t> timestamp_ns{};  // the time in the file
  bool whole_seconds = false;                  // the timestamp has whole seconds, as Python writes it
  std::int64_t written_ns = 0;                 // the latest time at which the file can have been written; 0: unknown
};

// Either format: {"message": {"message": "Type: text", "extraInfo": {"py_callstack": .., "timestamp": "10"}}} or
// {"message": "text", "timestamp": 10}; nullopt for anything else.
std::optional<ErrorFile> parse_error_file(std::string_view content);

// The time of the worker's failure. The file's timestamp gives the second, and the time of the write gives the fraction. The
// result is never later than `ended_ns`, the end of the process, which is used if there is no timestamp. Pure.
std::int64_t time_of_failure(const ErrorFile& file, std::int64_t ended_ns);

}  // namespace ddprun
