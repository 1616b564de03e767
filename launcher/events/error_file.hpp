// The error that a Python worker reported: torch.distributed.elastic's @record writes it to TORCHELASTIC_ERROR_FILE. The worker
// controls the content, so the parser limits its size and does not trust it. The code is pure; the agent reads the file with
// workers/error_file_reader.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace ddprun {

struct ErrorFile {
  std::filesystem::path path{};
  std::string message{};                       // "ValueError: x", or the message of a file in the second format
  std::string call_stack{};                    // Python's call stack; empty if the file has none
  std::optional<std::int64_t> timestamp_ns{};  // the timestamp that the file contains
  bool whole_seconds = false;                  // the timestamp has no fraction, as Python writes it
  std::int64_t written_ns = 0;                 // latest possible time at which the file was written; 0: unknown
};

// Parses two formats: {"message": {"message": "Type: text", "extraInfo": {"py_callstack": .., "timestamp": "10"}}} and
// {"message": "text", "timestamp": 10}. Returns nullopt for any other content.
std::optional<ErrorFile> parse_error_file(std::string_view content);

// Returns the time of the worker's failure. The file's timestamp gives the second, and the time when the file was written gives
// the fraction. The result is never later than `ended_ns`, the time when the process ended. Without a timestamp the result is
// `ended_ns`. The code is pure: no I/O, no clock.
std::int64_t time_of_failure(const ErrorFile& file, std::int64_t ended_ns);

}  // namespace ddprun
