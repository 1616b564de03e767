// The workers of one node in the current round. Between two rounds, this class describes the workers of the last round. There
// is one record per local rank. AgentState reads the records through this class. Only reports from workers and orders to
// workers change them. The code is pure: no I/O, no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/check.hpp"
#include "launcher/agent_state/agent_action.hpp"
#include "launcher/agent_state/state_settings.hpp"
#include "launcher/agent_state/worker_record.hpp"

namespace ddprun {

class RoundWorkers {
 public:
  RoundWorkers(const AgentSettings& settings, AgentTurn& turn) : settings_(settings), turn_(turn) {}

  // ---- processes ----

  void start(int rank);  // call this when a new process was started for this rank
  void start_all();
  // Call this when the worker has exited or could not be started. Returns false if this was recorded before.
  bool end(const agent_event::WorkerExited& event);
  bool end(const agent_event::SpawnFailed& event);
  void end_all_except(const std::vector<int>& running);

  // ---- reports ----

  void note(int rank, const channel::FromWorker& message);
  // Records the evidence of a hang. Returns the running ranks that cause it.
  std::vector<int> note(const agent_event::HangFound& event);
  // Records that the job has run training steps, or may have run some, in this or an earlier round.
  void note_training() { has_trained_ = true; }

  // ---- orders ----

  void request_stop(const std::vector<int>& ranks);
  void kill(const std::vector<int>& ranks);

  // ---- queries ----

  const AgentSettings& settings() const { return settings_; }
  int count() const { return static_cast<int>(records_.size()); }
  WorkerRecord& at(int rank) { return of_rank(records_, rank); }
  const WorkerRecord& at(int rank) const { return of_rank(records_, rank); }
  const std::vector<WorkerRecord>& all() const { return records_; }
  // Returns the ranks whose worker runs and can be killed. The round waits for their exit.
  std::vector<int> live() const;
  std::optional<int> stuck() const;
  bool all_ok() const { return std::ranges::all_of(records_, &WorkerRecord::exited_ok); }
  // Returns true if every running worker can save on a stop: ddptrain after it has sent Hello, a script after it has sent
  // SavesOnStop.
  bool all_can_save() const;
  // Returns true after any worker has sent Regroupable. All workers run the same program, so this is true for all of them and
  // for all later rounds.
  bool regroupable() const { return regroupable_; }
  // Returns true if the workers run ddptrain or a program with ddprun's C++ library, and this job has run training steps
  // before. A usage error that occurs later must then have another cause (Cause::kLateUsage). Always false for a plain script,
  // whose usage errors always count as usage errors.
  bool have_trained() const { return has_trained_ && (settings_.workers_have_channel || regroupable_); }
  std::int64_t newest_checkpoint() const { return newest_checkpoint_; }

  // Sets the global rank of this node's first worker, for the conversion of local to global ranks.
  void set_first_rank(int rank) { first_rank_ = rank; }
  int global(int rank) const { return first_rank_ + rank; }
  std::vector<int> global(std::vector<int> ranks) const;

 private:
  // Returns false if the end of this process was recorded before.
  bool end(int rank, std::int64_t time_ns);
  void on_hello(int rank, const channel::Hello& message);
  void refuse(WorkerRecord& worker, std::string why);

  const AgentSettings& settings_;
  AgentTurn& turn_;
  std::vector<WorkerRecord> records_;
  int first_rank_ = 0;
  bool has_trained_ = false;
  bool regroupable_ = false;
  std::int64_t newest_checkpoint_ = -1;
};

}  // namespace ddprun
