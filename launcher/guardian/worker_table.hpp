// The guardian's table of workers and spare interpreters, by number. It also stores a WorkerMark for each process, by which
// leftover processes of a worker are recognized. Guardian (guardian_loop.hpp) owns it. The table opens and closes pidfds, but
// does not signal or reap workers.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/leftovers/leftover_probe.hpp"

namespace ddprun::guardian {

class WorkerTable {
 public:
  struct Worker {
    pid_t pid = 0;
    int pidfd = -1;               // -1: the kernel has no pidfds, so SIGCHLD reports the exit
    std::int64_t started_us = 0;  // time of the start, on CLOCK_MONOTONIC
    bool killed = false;          // the agent has requested SIGKILL
    bool spare = false;           // a spare interpreter that is not part of a round yet
    std::int64_t stopped_us = 0;  // time at which the process was stopped (stops.hpp), CLOCK_MONOTONIC; 0: not stopped
    bool lease_expired = false;   // the guardian killed the worker because the lease had expired
    bool stopping = false;        // the agent is stopping the worker
    // Notice of the worker's exit. It is stored when the worker's process exits, and sent when the processes that the worker
    // left behind have ended too.
    std::optional<Notice> ending{};
    bool awaited_sent = false;  // kLeftoverAwaited was sent
  };

  // Adds a process that was just started and opens its pidfd.
  const Worker& add(int number, pid_t pid, std::int64_t started_us, bool spare, WorkerMark mark = {});
  // Turns a spare into a worker. Returns false if no spare has this number.
  bool activate(int number, const std::string& rank = {}, int store_port = 0);
  // Call this when the worker's process was reaped, but processes that it left behind still count as the worker. Closes the
  // pidfd.
  void keep_ended(int number, const Notice& ending);
  // Returns null if no worker has this number.
  Worker* find(int number);
  std::optional<int> number_of_pidfd(int pidfd) const;
  std::optional<int> number_of_process(pid_t pid) const;
  // Removes a worker that was reaped and closes its pidfd. The worker must be in the table.
  void remove(int number);

  // Returns the workers that run, or whose end was not reported yet. The key is the worker's number.
  std::map<int, Worker>& all() { return workers_; }
  bool none_at_work() const;  // true if all processes in the table are spares
  bool has_spares() const;
  bool any_kept() const;  // true if the process of at least one worker has exited, but the worker still counts as running
  // Returns `processes` without the spares.
  std::vector<pid_t> without_spares(std::vector<pid_t> processes) const;

  // Returns the marks of all worker processes, including those that have exited since the last forget_ended().
  std::vector<WorkerMark> marks() const;
  // Records that the worker's process group received a signal on which programs exit. Signal 0 means that the stop was ordered
  // over the channel.
  void note_reached(int number, int signal);
  void note_channel_pid(int number, pid_t pid);
  void forget_ended();

 private:
  std::map<int, Worker> workers_;
  std::map<int, int> number_of_pidfd_;
  void close_pidfd(Worker& worker);
  WorkerMark* newest_mark(int number);
  std::vector<WorkerMark> marks_;  // marks of workers and spares, in the order of their start
};

}  // namespace ddprun::guardian
