// A layer between the program and its file system, for tests: the file functions of libc are defined in the test program
// itself, so every caller in it (ours and the C++ library's) comes through here. Idle until watch() is called; then calls on
// one folder are counted and recorded, and one of them fails, stops half-way or kills the process.
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
    kFails,          // this call, with `error`
    kFailsFromHere,  // this and every later one that needs space or writes, with `error`
    kShort,          // a write takes half
    kKills,          // SIGKILL before the call
    kKillsInside,    // SIGKILL when a write has taken half
  };
  Kind kind = Kind::kNone;
  std::size_t call = std::numeric_limits<std::size_t>::max();  // counted from 0
  int error = 0;
};

struct RecordedCall {
  std::string name;    // "write"
  std::string path;    // within the folder; empty: the folder itself
  std::string second;  // rename, symlink: the new name
  bool needs_space = false;
};

// Until stop_watching(), in this process and in this thread only. Syncs are recorded and not done: they change nothing that a
// process can see, and cost most of the time.
void watch(const std::filesystem::path& folder, CallFault fault = {});
std::vector<RecordedCall> stop_watching();

}  // namespace ddprun::test
