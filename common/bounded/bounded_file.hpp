// Reads a small file whole, up to a stated limit. For every file that another user, node or program may have written.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ddprun {

// `most`: bytes. `what` names the kind of file in the message: "FILE: has N bytes; a manifest has at most M". Allocates no more
// than the limit, whatever the file's size says, and never waits for a FIFO. Throws UsageError that begins with the file's
// path: longer than the limit, no regular file, missing, unreadable; where the machine lacks memory or descriptors, what
// throw_if_machine_lacks() does.
std::string read_bounded(const std::filesystem::path& file, std::size_t most, std::string_view what);

}  // namespace ddprun
