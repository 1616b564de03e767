// Reads a small file completely, up to a limit. For every file that another user, node or program may have written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ddprun {

// `most`: bytes. `what` is the kind of file for the message: "FILE: has N bytes; a manifest has at most M". Allocates no more
// than the limit, even if the file claims a larger size, and never waits for a FIFO. Throws UsageError that begins with the
// file's path: longer than the limit, not a regular file, missing, unreadable. If the machine lacks memory or descriptors, it
// throws as throw_if_machine_lacks().
std::string read_bounded(const std::filesystem::path& file, std::size_t most, std::string_view what);

}  // namespace ddprun
