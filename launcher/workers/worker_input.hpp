// The standard input that workers share with us, if the plan passes it on (launcher/plan/plan_input.hpp). It knows whether any
// of it was read, so that a restart can say what is missing. It also keeps a terminal's settings, which a worker that is killed
// at a debugger's prompt leaves changed. Part of the agent's shell; one thread.
#pragma once

#include <termios.h>

#include <cstdint>
#include <optional>
#include <string>

namespace ddprun {

class WorkerInput {
 public:
  // Watches descriptor 0 from now on if `passed_on`; otherwise it does nothing.
  explicit WorkerInput(bool passed_on);
  ~WorkerInput();  // restores a terminal's settings, if we are in its foreground group
  WorkerInput(const WorkerInput&) = delete;
  WorkerInput& operator=(const WorkerInput&) = delete;

  // A sentence about what new workers will miss; nothing when nothing was read.
  std::optional<std::string> what_is_gone();

 private:
  std::int64_t offset_ = -1;  // the file's offset at the start; -1: not a file
  int watch_ = -1;            // an inotify instance, if it is not a file
  bool was_read_ = false;
  std::optional<termios> settings_;
};

}  // namespace ddprun
