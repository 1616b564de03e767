// What the machine lacks for the moment, told by errno: memory, or descriptors. That is no mistake in a config, and no file is
// damaged by it. Whoever opens, maps or reads a file for a user asks here before it says that the file is to blame.
#pragma once

#include <cerrno>
#include <string>

#include "common/base/error.hpp"

namespace ddprun {

// Throws Error with the code of "out of memory", or InternalError where descriptors have run out. Returns for any other error.
inline void throw_if_machine_lacks(int error, const std::string& message) {
  if (error == ENOMEM) throw Error(ExitCode::kOutOfMemory, "out of memory: " + message);
  if (error == ENFILE || error == EMFILE) throw InternalError(message);
}

}  // namespace ddprun
