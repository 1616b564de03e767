// The standard input that workers share with us, if the plan passes it on (launcher/plan/plan_input.hpp). The class detects
// whether any of it was read, so that a restart can report what is missing. It also saves a terminal's settings and restores
// them, since a worker killed at a debugger's prompt leaves them changed. Part of the agent's shell; one thread.
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

  // A sentence about the input that new workers will miss; nullopt if nothing was read.
  std::optional<std::string> what_is_gone();

 private:
  std::int64_t offset_ = -1;  // file offset at the start; -1 if it is not a file
  int watch_ = -1;            // inotify instance if it is not a file
  bool was_read_ = false;
  std::optional<termios> settings_;
};

}  // namespace ddprun
