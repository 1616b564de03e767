// A layer between the program and its file system, for tests. The test program defines libc's file functions itself, so all
// callers in it (our code and the C++ library) come through here. It is idle until watch() is called. Then calls on one folder
// are counted and recorded, and one of them fails, stops half-way or kills the process.
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
    kFails,          // fails this call with `error`
    kFailsFromHere,  // fails this and every later call that needs space or writes, with `error`
    kShort,          // a write writes only half
    kKills,          // SIGKILL before the call
    kKillsInside,    // SIGKILL when half was written
  };
  Kind kind = Kind::kNone;
  std::size_t call = std::numeric_limits<std::size_t>::max();  // counted from 0
  int error = 0;
};

struct RecordedCall {
  std::string name;    // "write"
  std::string path;    // path within the folder; empty: the folder itself
  std::string second;  // rename, symlink: the new name
  bool needs_space = false;
};

// Watches until stop_watching(), in this process and in this thread only. Syncs are recorded but not executed: they have no
// effect that a process can see, and cost most of the time.
void watch(const std::filesystem::path& folder, CallFault fault = {});
std::vector<RecordedCall> stop_watching();

}  // namespace ddprun::test
