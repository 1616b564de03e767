// Files that the kernel makes up when they are read: /proc, cgroups. The guardian reads some of them before the first worker
// may start, so by plain system calls: a C++ stream costs as much as the file.
#pragma once

#include <optional>
#include <string>

namespace ddprun {

// All of it; nothing when it can't be opened.
std::optional<std::string> read_kernel_file(const char* path);

}  // namespace ddprun
