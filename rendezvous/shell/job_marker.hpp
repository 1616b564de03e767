// A file of the run directory that says whether a job of many machines runs on that directory. It outlasts machines and
// containers if the directory does: a node that finds it, and remembers nothing else, knows that the job may be running
// elsewhere. node_shell.hpp writes it on each node, in whatever run directory that node has.
#pragma once

#include <filesystem>
#include <optional>

#include "rendezvous/node/memory.hpp"

namespace ddprun::rendezvous {

class JobMarker {
 public:
  JobMarker() = default;  // without a run directory nothing is written
  explicit JobMarker(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& path() const { return file_; }
  // Adds what the file says to what the node's own record says. A damaged file counts as "running".
  void add_to(Memory& memory) const;
  // Writes the file once. A failure is not reported: the node's own record counts first.
  void note_running() { note(true); }
  // Writes only over an existing file.
  void note_over();

 private:
  void note(bool running);

  std::filesystem::path file_;
  std::optional<bool> noted_;
};

}  // namespace ddprun::rendezvous
