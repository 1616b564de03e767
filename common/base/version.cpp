#include "common/base/version.hpp"

#include <ddprun_built_version.hpp>  // written by cmake/WriteVersion.cmake

namespace ddprun {

const char* const kVersion = DDPRUN_BUILT_VERSION;
const char* const kCommit = DDPRUN_BUILT_COMMIT;

std::string version_and_commit() {
  const std::string commit = kCommit;
  return commit.empty() ? kVersion : kVersion + (" (" + commit + ")");
}

}  // namespace ddprun
