// Files whose content the kernel makes when they are read: /proc, cgroups. The guardian reads some of them before the first
// worker may start, so it uses plain system calls: a C++ stream costs as much time as the file.
#pragma once

#include <optional>
#include <string>

namespace ddprun {

// The whole file; nothing when it can't be opened.
std::optional<std::string> read_kernel_file(const char* path);

}  // namespace ddprun
