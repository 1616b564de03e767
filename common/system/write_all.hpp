// write(2) until all of it is written: to files, pipes and terminals that block.
#pragma once

#include <string_view>

namespace ddprun {

// 0, or the errno of what could not be written.
int write_all(int fd, std::string_view bytes);

}  // namespace ddprun
