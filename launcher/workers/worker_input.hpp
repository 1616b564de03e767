// Watches the standard input that the workers share with the agent, if the plan passes it on (launcher/plan/plan_input.hpp). It
// detects whether workers have read from the input, so that the agent can report at a restart which input is missing. It also
// restores the settings of a terminal. For example, a worker that is killed at a debugger's prompt leaves them changed. This
// class is part of the agent's shell and runs on one thread.
#pragma once

#include <termios.h>

#include <cstdint>
#include <optional>
#include <string>

#include "common/system/descriptor.hpp"

namespace ddprun {

class WorkerInput {
 public:
  // Starts to watch descriptor 0. Does nothing if `passed_on` is false.
  explicit WorkerInput(bool passed_on);
  ~WorkerInput();  // restores the terminal's settings, if we are its foreground process group
  WorkerInput(const WorkerInput&) = delete;
  WorkerInput& operator=(const WorkerInput&) = delete;

  // Returns a sentence about the input that new workers will miss; nullopt if no input was read.
  std::optional<std::string> missing_input();

 private:
  std::int64_t offset_ = -1;  // file offset at the start; -1 if standard input is not a file
  Descriptor watch_;          // inotify instance; none if standard input is a file or not watched
  bool was_read_ = false;
  std::optional<termios> settings_;
};

}  // namespace ddprun
