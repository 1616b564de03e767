// The standard input that workers share with us, where the plan passes it on (launcher/plan/plan_input.hpp): whether it was
// read, so that a restart can say what it will not find there, and a terminal's settings, which a worker that is killed in a
// debugger's prompt leaves changed. Part of the agent's shell; one thread.
#pragma once

#include <termios.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun {

class WorkerInput {
 public:
  // Watches descriptor 0 from now on if `passed_on`; else it knows nothing and does nothing.
  explicit WorkerInput(bool passed_on);
  ~WorkerInput();  // gives a terminal its settings back while we are in its foreground group
  WorkerInput(const WorkerInput&) = delete;
  WorkerInput& operator=(const WorkerInput&) = delete;

  // What workers that start now will not find in it, as a sentence; nothing when nothing was read.
  std::optional<std::string> what_is_gone();

 private:
  std::int64_t offset_ = -1;  // of a file when we began; -1: it is none
  int watch_ = -1;            // an inotify instance, of anything else
  bool was_read_ = false;
  std::optional<termios> settings_;
};

}  // namespace ddprun
