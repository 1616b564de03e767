// Calls write(2) until all bytes are written. Use it for files, pipes and terminals in blocking mode.
#pragma once

#include <string_view>

namespace ddprun {

// Returns 0, or the errno of the failed write(2).
int write_all(int fd, std::string_view bytes);

}  // namespace ddprun
