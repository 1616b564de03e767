// The file of the history of nodes: node-failures.json in state_folder(). All jobs of a user on all machines that share the
// folder read and write it.
//
// A writer locks node-failures.lock, reads the file, adds its failures, and replaces the file by a rename. So two jobs that
// write at the same time lose nothing, and a reader needs no lock. A file that cannot be parsed is renamed to
// node-failures.json.damaged, and a new history starts. A file of a later format is left as it is. The functions block, and
// never throw for a problem of the file: the job is more important than its history.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "launcher/node_history/node_history.hpp"

namespace ddprun {

class NodeHistoryFile {
 public:
  // `folder` may be empty or missing. The first failure creates it.
  explicit NodeHistoryFile(std::filesystem::path folder) : folder_(std::move(folder)) {}

  struct Content {
    NodeHistory history{};
    std::string problem{};  // a line for users; empty if the file was read, or does not exist
  };
  Content read() const;

  // Adds the failures. Returns a line for users if they could not be added, or if the file was damaged; otherwise "".
  std::string add(const NodeHistory& failures, std::int64_t now_s) const;

 private:
  std::filesystem::path file() const { return folder_ / "node-failures.json"; }
  std::filesystem::path lock_file() const { return folder_ / "node-failures.lock"; }
  Content read_locked() const;

  std::filesystem::path folder_;
};

}  // namespace ddprun
