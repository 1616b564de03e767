// The version of ddprun, and the commit from which it was built. CMakeLists.txt defines the version (project VERSION). At each
// build, cmake/WriteVersion.cmake gets the commit from git.
#pragma once

#include <string>

namespace ddprun {

extern const char* const kVersion;  // "0.1.0"
// The commit, such as "0486c001d2f3". If the checkout had local changes, the text ends with "+". The text is empty if ddprun
// was built outside a git checkout.
extern const char* const kCommit;

// A string in the executable file of ddptrain. It is followed by LibTorch's version and a zero byte, so ddprun can read that
// version from the file.
#define DDPRUN_LIBTORCH_MARK "ddptrain was built with LibTorch "

// Returns the text for --version, such as "0.1.0 (0486c001d2f3)".
std::string version_and_commit();

}  // namespace ddprun
