// Temporary lack of memory or descriptors, detected by errno. That is not an error in a config, and no file is damaged by it.
// Code that opens, maps or reads a file for a user calls this before it blames the file.
#pragma once

#include <cerrno>
#include <string>

#include "common/base/error.hpp"

namespace ddprun {

// Throws Error with the code for out of memory, or InternalError if descriptors are exhausted. Returns for any other error.
inline void throw_if_machine_lacks(int error, const std::string& message) {
  if (error == ENOMEM) throw Error(ExitCode::kOutOfMemory, "out of memory: " + message);
  if (error == ENFILE || error == EMFILE) throw InternalError(message);
}

}  // namespace ddprun
