// The job marker: a file in the run directory that records whether a multi-node job is running in that directory. On a shared
// file system, the marker survives the loss of a machine or container. If a node finds the marker but has no record, the job
// might still be running elsewhere. node_shell.hpp writes the marker on each node, in the run directory of that node.
#pragma once

#include <filesystem>
#include <optional>

#include "rendezvous/node/restored_state.hpp"

namespace ddprun::rendezvous {

class JobMarker {
 public:
  JobMarker() = default;  // for a node that has no run directory; the functions then write nothing
  explicit JobMarker(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& path() const { return file_; }
  // Adds the content of the file to the state that this node has restored. A damaged file counts as "running".
  void add_to(RestoredState& restored) const;
  // Writes "running" at the first call. A failure is not reported, because the marker is only needed if the node's record is
  // lost.
  void note_running() { note(true); }
  // Writes "over", if the file exists.
  void note_over();

 private:
  void note(bool running);

  std::filesystem::path file_;
  std::optional<bool> noted_;
};

}  // namespace ddprun::rendezvous
