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
  bool heard = false;          // anything, as this rank
  bool refused = false;        // of another version than the agent, and ended for it; or ended well without a word
  bool saves_on_stop = false;  // of a script: it has said that it can
  bool saves_now = false;      // likewise: it has come to the step at which all stop
  std::optional<int> standby;  // its number, when it was one
  bool has_trained = false;    // as this process
  bool says_done = false;
  bool asked_to_stop = false;  // before it ended
  std::int64_t asked_ns = 0;
  bool killed = false;  // SIGKILL was ours
  std::int64_t pid = 0;
  std::int64_t step = -1;
  std::optional<channel::WorkerError> error;  // fatal, typed
  std::optional<ErrorFile> error_file;
  OomVerdict memory;
  std::string out_of_memory;  // its own word, of a script
  std::string exception;      // likewise
  std::optional<ExitStatus> status;
  std::optional<std::string> spawn_error;
  std::optional<std::string> timer_expired;
  std::optional<std::string> hangs;        // why it is to blame
  std::vector<std::string> hang_evidence;  // also of those that wait for it
  std::optional<std::string> stuck;        // nobody waits for it any more
  int spawn_errno = 0;
  std::int64_t ended_ns = 0;
};

}  // namespace ddprun
