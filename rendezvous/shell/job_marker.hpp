// A file in the run directory that records whether a multi-node job runs on that directory. It outlives machines and containers
// if the directory does. A node that finds it and has no other memory knows that the job may be running elsewhere.
// node_shell.hpp writes it on each node, in the run directory of that node.
#pragma once

#include <filesystem>
#include <optional>

#include "rendezvous/node/memory.hpp"

namespace ddprun::rendezvous {

class JobMarker {
 public:
  JobMarker() = default;  // without a run directory, writes nothing
  explicit JobMarker(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& path() const { return file_; }
  // Merges the file's content into the node's own memory. A damaged file counts as "running".
  void add_to(Memory& memory) const;
  // Writes the file once. A failure is not reported, since the node's own record has priority.
  void note_running() { note(true); }
  // Writes only over an existing file.
  void note_over();

 private:
  void note(bool running);

  std::filesystem::path file_;
  std::optional<bool> noted_;
};

}  // namespace ddprun::rendezvous
