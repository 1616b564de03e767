// Detects a lack of memory or descriptors by errno. A lack of resources is not an error in a user's file. So code that opens,
// maps or reads a user's file calls this function before it reports the file as invalid.
#pragma once

#include <cerrno>
#include <string>

#include "common/base/error.hpp"

namespace ddprun {

// Throws Error with ExitCode::kOutOfMemory if memory is exhausted, and InternalError if descriptors are exhausted. Returns
// normally for any other `error`.
inline void throw_if_resources_exhausted(int error, const std::string& message) {
  if (error == ENOMEM) throw Error(ExitCode::kOutOfMemory, "out of memory: " + message);
  if (error == ENFILE || error == EMFILE) throw InternalError(message);
}

}  // namespace ddprun
