// Reads a small file completely, up to a limit. Use it for every file that another user, node or program may have written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ddprun {

// Returns the content of `file`. `what` is the kind of file for messages, such as "a manifest". Allocates at most the limit,
// even if the reported size is larger, and never waits for the writer of a FIFO. Throws UsageError, with the file's path
// first, if the file is longer than the limit, not a regular file, missing, or unreadable. If memory or descriptors are
// exhausted, throws the error of throw_if_resources_exhausted().
std::string read_bounded(const std::filesystem::path& file, std::size_t max_bytes, std::string_view what);

}  // namespace ddprun
