// The agent's record of one worker of the round. AgentState keeps one for each local rank; round_judgement.hpp reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/channel/message.hpp"
#include "launcher/events/error_file.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/verdict/oom_verdict.hpp"

namespace ddprun {

struct WorkerRecord {
  bool live = false;
  bool said_hello = false;
  bool heard = false;          // it has sent a message other than Hello
  bool refused = false;        // its version differs from the agent's, or it ended with 0 without any message
  bool saves_on_stop = false;  // a script has reported SavesOnStop
  bool saves_now = false;      // a script has reached the agreed step and saves
  std::optional<int> standby;  // its number, if it was a standby
  bool has_trained = false;    // this process has trained
  bool says_done = false;
  bool asked_to_stop = false;  // before it ended
  std::int64_t asked_ns = 0;
  bool killed = false;     // by our own SIGKILL
  bool abandoned = false;  // the others save without this rank: it holds no state that they lack
  std::int64_t pid = 0;
  std::int64_t step = -1;
  std::optional<channel::WorkerError> error;  // a fatal error that it reported over the channel
  std::optional<ErrorFile> error_file;
  OomVerdict memory;
  std::string out_of_memory;  // stderr line of a script that reports a refused allocation
  std::string exception;      // the last one that a script wrote to stderr
  std::optional<ExitStatus> status;
  std::optional<std::string> spawn_error;
  std::optional<std::string> timer_expired;
  std::optional<std::string> hangs;        // set if it is to blame for a hang: the reason
  std::vector<std::string> hang_evidence;  // also set for ranks that wait for the culprit
  std::optional<std::string> stuck;        // it cannot be killed, and the round does not wait for it
  int spawn_errno = 0;
  std::int64_t ended_ns = 0;
};

}  // namespace ddprun
