// What an agent knows of one worker of the round: AgentState keeps one for each local rank, round_judgement.hpp reads them.
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
  bool heard = false;          // any message came from it as this rank
  bool refused = false;        // it had another version than the agent, or ended with 0 without any message
  bool saves_on_stop = false;  // a script has said that it can save
  bool saves_now = false;      // a script has come to the step at which all stop
  std::optional<int> standby;  // its number, if it was a standby
  bool has_trained = false;    // in this process
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
  std::string out_of_memory;  // a script's line of stderr
  std::string exception;      // the last one that a script wrote to stderr
  std::optional<ExitStatus> status;
  std::optional<std::string> spawn_error;
  std::optional<std::string> timer_expired;
  std::optional<std::string> hangs;        // set if it is to blame for a hang: why
  std::vector<std::string> hang_evidence;  // also for ranks that wait for it
  std::optional<std::string> stuck;        // nobody waits for it any more
  int spawn_errno = 0;
  std::int64_t ended_ns = 0;
};

}  // namespace ddprun
