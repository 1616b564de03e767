// The worker processes of a round on this node. Starts them under the guardian, connects their output and their channels, and
// replaces a lost one by a new process or a standby. It distinguishes two kinds of numbers: local ranks, and the numbers by
// which the guardian knows a process (a worker's local rank, or the number that it had as a standby). Part of the agent's
// shell; one thread.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/base/check.hpp"
#include "common/channel/message.hpp"
#include "launcher/agent/output_reader.hpp"
#include "launcher/beside/snapshot_memory.hpp"
#include "launcher/guardian/guardian_link.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/plan/plan.hpp"
#include "launcher/workers/standby_processes.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "launcher/workers/worker_input.hpp"
#include "launcher/workers/worker_pipes.hpp"

namespace ddprun {

class RoundWorkers {
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
  struct Hooks {
    std::function<void(int number, const channel::FromWorker&)> said;
    // The worker has closed its channel without a request of the agent.
    std::function<void(int rank, const std::string& why)> channel_closed;
    // Earlier workers have read this input, so new ones will not get it.
    std::function<void(const std::string& what)> input_was_read;
  };
  RoundWorkers(const Parts& parts, Hooks hooks)
      : parts_(parts),
        hooks_(std::move(hooks)),
        input_(parts.plan.input == WorkersInput::kOurs),
        snapshots_(train() ? 0 : parts.plan.nproc_per_node) {}

  // Begins a round with that many ranks and no workers yet. The spare interpreters with these numbers become the workers of the
  // first ranks.
  void begin_round(std::size_t workers, std::vector<int> spares);
  // Starts the worker of settings.ranks.local_rank, in its spare interpreter if that still runs. Fills in error file, device
  // and memory for snapshots. Throws InternalError.
  void start(WorkerSettings settings);
  // Removes a lost worker, so that its rank is free for a replacement.
  void clear_place(int rank, const OutputRound& round);
  // The standby with that number becomes the worker of a free rank.
  void take_over(int rank, int standby);
  // Starts a process that waits for a rank, or a spare interpreter. Throws InternalError or std::system_error.
  void start_standby(int number, WorkerSettings settings);
  // Closes pipes and channels of workers and ddptrain's standbys. Spare interpreters outlive a round.
  void close();

  std::size_t size() const { return workers_.size(); }
  WorkerProcess& at(int rank) { return of_rank(workers_, rank); }
  const std::vector<WorkerProcess>& all() const { return workers_; }
  std::vector<pid_t> pids() const;  // by local rank; 0: not running
  std::vector<int> running() const;
  // The rank's process has ended, or could not be started.
  const WorkerProcess& ended(int rank);
  // Sends nothing to a worker that has ended or has no channel.
  void tell(int rank, const channel::FromAgent& message) const;
  void signal(int rank, int signal, GuardianLink::Purpose purpose = GuardianLink::Purpose::kAny) const;
  void signal_all(int signal) const;
  // The size of our terminal has changed. Passes the new size to workers that write to their own terminals.
  void terminal_resized() const;

  // Looks up a process by the guardian's number. A waiting standby has a channel but no rank; an unknown process has neither.
  std::optional<int> rank_of(int number) const;
  // Pids of running workers that were standbys or spares, by rank.
  std::map<int, pid_t> taken_over() const;
  bool was_standby(int number) const { return taken_over_.contains(number); }
  WorkerChannel* channel_of(int number) const;

 private:
  bool train() const { return parts_.plan.kind == Plan::Kind::kTrain; }
  Ends output_of(int rank, Stream stream) const;

  Parts parts_;
  Hooks hooks_;
  WorkerInput input_;
  SnapshotMemory snapshots_;
  std::vector<WorkerProcess> workers_;  // by local rank
  std::map<int, int> spares_;           // numbers of the spares in which this round's workers start, by rank
  std::map<int, int> taken_over_;       // ranks of workers that were standbys, by standby number
};

}  // namespace ddprun
