// The product's version, and the commit from which it was built. CMakeLists.txt defines the number (project VERSION), and each
// build gets the commit from git (cmake/WriteVersion.cmake).
#pragma once

#include <string>

namespace ddprun {

extern const char* const kVersion;  // "0.1.0"
extern const char* const kCommit;   // "0486c001d2f3", "0486c001d2f3+" with local changes; empty when built outside a checkout

// Precedes the version of LibTorch in ddptrain's file; that version ends with a zero byte.
#define DDPRUN_LIBTORCH_MARK "ddptrain was built with LibTorch "

// "0.1.0 (0486c001d2f3)", for --version
std::string version_and_commit();

}  // namespace ddprun
