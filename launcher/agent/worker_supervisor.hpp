// Manages the worker processes of a round on this node. The class starts them through the guardian, and connects their output
// and their channels. It replaces a lost worker by a new process or a standby. A `rank` is a local rank. A `number` is the
// guardian's name for a process: a worker's local rank, or a higher number if the process was started as a standby. The class
// is part of the agent's shell and runs on one thread.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/base/check.hpp"
#include "common/channel/message.hpp"
#include "launcher/agent/output_reader.hpp"
#include "launcher/guardian/guardian_link.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/workers/snapshot_buffer.hpp"
#include "launcher/workers/standby_processes.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "launcher/workers/worker_input.hpp"
#include "launcher/workers/worker_pipes.hpp"

namespace ddprun {

class WorkerSupervisor {
 public:
  struct Parts {
    boost::asio::io_context& io;
    const Plan& plan;
    std::span<const std::string> inherited_environment;
    WorkerOutput& output;
    OutputReader& reader;
    GuardianLink& guardian;
    StandbyProcesses& standbys;
  };
  struct Agent {
    virtual void on_message(int number, const channel::FromWorker& message) = 0;
    // The supervisor calls this when the worker has closed its channel although the agent had not requested it.
    virtual void on_channel_closed(int rank, const std::string& why) = 0;
    virtual void publish(const RunEvent& event) = 0;  // `event` is always InputWasRead

   protected:
    ~Agent() = default;
  };
  WorkerSupervisor(const Parts& parts, Agent& agent)
      : parts_(parts),
        agent_(agent),
        input_(parts.plan.input == WorkersInput::kOurs),
        snapshots_(train() ? 0 : parts.plan.nproc_per_node) {}

  // Starts a round with this number of ranks. start() then adds the workers. `spares` has the numbers of the spare interpreters
  // that will run the workers of ranks 0, 1, ...
  void begin_round(std::size_t workers, std::vector<int> spares);
  // Starts the worker of settings.ranks.local_rank. If this rank has a spare interpreter that still runs, the worker runs in
  // that process. Sets the worker's error file, device and snapshot memory in the settings. Throws InternalError.
  void start(WorkerSettings settings);
  // Removes a lost worker, so that another process can get its rank.
  void free_rank(int rank, const OutputRound& round);
  // Turns the standby with this number into the worker of `rank`. Call free_rank() first.
  void take_over(int rank, int standby);
  // Starts a standby (a process that waits for a rank). For a script it is a spare interpreter. Throws InternalError or
  // std::system_error.
  void start_standby(int number, WorkerSettings settings);
  // Closes the pipes and channels of the workers and of ddptrain's standbys. The pipes and channels of spare interpreters stay
  // open, since spares survive the end of a round.
  void close();

  std::size_t size() const { return workers_.size(); }
  WorkerProcess& at(int rank) { return of_rank(workers_, rank); }
  const std::vector<WorkerProcess>& all() const { return workers_; }
  std::vector<pid_t> pids() const;  // indexed by local rank; 0: the process does not run
  std::vector<int> running() const;
  // Call this when the process of a rank has exited or could not be started.
  const WorkerProcess& ended(int rank);
  // Sends a message to the worker. Drops it if the worker has exited or has no channel.
  void send(int rank, const channel::FromAgent& message) const;
  void signal(int rank, int signal, GuardianLink::Purpose purpose = GuardianLink::Purpose::kAny) const;
  void signal_all(int signal) const;
  // Call this when the size of ddprun's terminal has changed. Workers with a terminal for their output get the new size and
  // SIGWINCH.
  void terminal_resized() const;

  // These functions take the guardian's number of a process. A waiting standby has a channel but no rank. An unknown process
  // has neither.
  std::optional<int> rank_of(int number) const;
  // Returns the pids of the running workers that were started as standbys or spares, by rank.
  std::map<int, pid_t> taken_over() const;
  bool was_standby(int number) const { return taken_over_.contains(number); }
  WorkerChannel* channel_of(int number) const;

 private:
  bool train() const { return parts_.plan.kind == Plan::Kind::kTrain; }
  Ends output_of(int rank, Stream stream) const;

  Parts parts_;
  Agent& agent_;
  WorkerInput input_;
  SnapshotBuffer snapshots_;
  std::vector<WorkerProcess> workers_;  // index: local rank
  std::map<int, int> spares_;           // key: local rank; value: number of the spare interpreter that this worker will use
  // Local ranks of the workers that were started as standbys or spares, by the guardian's number.
  std::map<int, int> taken_over_;
};

}  // namespace ddprun
