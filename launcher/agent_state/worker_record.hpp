// The agent's record of one worker in the current round. RoundWorkers has one record per local rank; round_judgement.hpp reads
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/exit_code.hpp"
#include "common/channel/message.hpp"
#include "launcher/agent_state/agent_event.hpp"

namespace ddprun {

struct WorkerRecord {
  bool live = false;
  bool got_hello = false;
  bool has_sent_message = false;  // the worker has sent a message other than Hello
  // true if the worker has an incompatible protocol version, or has exited with code 0 without any message
  bool refused = false;
  bool saves_on_stop = false;  // the script has sent SavesOnStop: it can save when it is ordered to stop
  bool saves_now = false;      // the script has reached the agreed step and has started to save
  std::optional<int> standby;  // number of the standby or spare interpreter that became this worker; nullopt for a new process
  bool has_trained = false;    // this process has entered the training phase (channel::Phase::kRunning)
  bool reported_done = false;
  bool stop_requested = false;  // the agent ordered the worker to stop before it exited
  std::int64_t stop_requested_ns = 0;
  bool killed = false;  // the agent has sent SIGKILL
  // The other ranks save without this worker. Its state is not newer than the state of the other ranks.
  bool abandoned = false;
  std::int64_t pid = 0;
  std::int64_t step = -1;
  std::optional<channel::WorkerError> error;  // fatal error that the worker reported over its channel
  agent_event::WorkerExited end;              // the event of its exit; default values while it runs
  std::optional<ExitStatus> status;
  std::optional<std::string> spawn_error;
  std::optional<std::string> timer_expired;
  std::optional<std::string> hangs;        // why this worker causes a hang; nullopt if it does not
  std::vector<std::string> hang_evidence;  // evidence about the hang; also set for ranks that only wait for another rank
  std::optional<std::string> stuck;        // set if the process cannot be killed; the round does not wait for its exit
  int spawn_errno = 0;
  std::int64_t ended_ns = 0;

  bool is_awaited() const { return live && !stuck; }
  bool has_failed() const { return spawn_error || stuck || (status && !status->ok()); }
  bool exited_ok() const { return status && status->ok(); }
  // Returns true if the worker exited with kPreempted. ddptrain does so after a save. A script may use any exit code.
  bool exited_preempted() const {
    return status && status->signal == 0 && status->code == static_cast<int>(ExitCode::kPreempted);
  }
  bool ended_well() const { return exited_ok() || exited_preempted(); }
};

}  // namespace ddprun
