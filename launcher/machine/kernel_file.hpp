// Reads files whose content the kernel generates on each read: /proc, cgroups. The guardian reads some of them before the first
// worker may start, so speed matters. Plain system calls are used, since a C++ stream costs as much time as reading the file.
#pragma once

#include <optional>
#include <string>

namespace ddprun {

// Returns the whole file; nullopt if it can't be opened.
std::optional<std::string> read_kernel_file(const char* path);

}  // namespace ddprun
