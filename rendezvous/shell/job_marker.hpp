// A file of the run directory that says whether a job of many machines runs on what is in it. It outlasts machines and
// containers where the run directory does: who finds it, and remembers nothing else, knows that the job may be running
// elsewhere. node_shell.hpp writes it on each node, in whatever run directory that node has.
#pragma once

#include <filesystem>
#include <optional>

#include "rendezvous/node/memory.hpp"

namespace ddprun::rendezvous {

class JobMarker {
 public:
  JobMarker() = default;  // there is none, and nothing happens
  explicit JobMarker(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& path() const { return file_; }
  // What it says, to what else is remembered. One that is damaged counts as running.
  void add_to(Memory& memory) const;
  // Written once; where that fails nothing is said: the node's own record is what counts first.
  void note_running() { note(true); }
  // Only where it is.
  void note_over();

 private:
  void note(bool running);

  std::filesystem::path file_;
  std::optional<bool> noted_;
};

}  // namespace ddprun::rendezvous
