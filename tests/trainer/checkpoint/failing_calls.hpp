// Injects faults into file operations. The test program itself defines the file functions of libc, so all calls of our code
// and of the C++ library use these definitions. Until watch() is called, the functions only forward each call. After that, the
// calls on one folder are counted and recorded. One of these calls can fail, write only half of its bytes, or kill the
// process.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

namespace ddprun::test {

struct CallFault {
  enum class Kind {
    kNone,
    kFailCall,      // this call fails with `error`
    kFailFromCall,  // from this call on, each call that needs disk space fails with `error`
    kShort,         // this write writes only half of its bytes
    kKills,         // the process gets SIGKILL before this call
    kKillInside,    // the process gets SIGKILL after this call has written half of its bytes
  };
  Kind kind = Kind::kNone;
  std::size_t call = std::numeric_limits<std::size_t>::max();  // counted from 0
  int error = 0;
};

struct RecordedCall {
  std::string name;    // name of the function, such as "write"
  std::string path;    // path relative to the folder; empty for the folder itself
  std::string second;  // the new name, for rename and symlink
  bool needs_space = false;
};

// Watches the calls of this thread on `folder` until stop_watching(). Syncs are recorded but not executed. A process cannot see
// the effect of a sync, and syncs would take most of the time.
void watch(const std::filesystem::path& folder, CallFault fault = {});
std::vector<RecordedCall> stop_watching();

}  // namespace ddprun::test
