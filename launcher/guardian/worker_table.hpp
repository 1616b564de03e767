// The guardian's workers and spares by number, and the marks of their processes. guardian.cpp owns one. It opens and closes
// their pidfds, but does not signal or reap them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/leftovers/leftover_look.hpp"

namespace ddprun::guardian {

class WorkerTable {
 public:
  struct Worker {
    pid_t pid = 0;
    int pidfd = -1;               // -1: the kernel has no pidfds, and SIGCHLD is used instead
    std::int64_t started_us = 0;  // CLOCK_MONOTONIC
    bool killed = false;          // the agent ordered SIGKILL
    bool spare = false;           // it belongs to no round yet
    std::int64_t stopped_us = 0;  // time at which it was stopped (stops.hpp); 0: it is not stopped
    bool overdue = false;         // killed by the guardian at the deadline of kDeadline
    bool stopping = false;        // the agent is stopping it
    // Notice of its end, kept back while its leftovers count as the worker. Set once its own process has ended.
    std::optional<Notice> ending{};
    bool awaited_is_told = false;  // kIsAwaited was sent
  };

  // Adds a process that has just started, and opens its pidfd.
  const Worker& add(int number, pid_t pid, std::int64_t started_us, bool spare, WorkerMark mark = {});
  // The spare becomes a worker. False: no spare has that number.
  bool employ(int number, const std::string& rank = {}, int store_port = 0);
  // The worker's process was reaped, but its leftovers still count as the worker. Closes its pidfd.
  void keep_ended(int number, const Notice& ending);
  // Null if the table has no worker with that number.
  Worker* find(int number);
  std::optional<int> number_of_pidfd(int pidfd) const;
  std::optional<int> number_of_process(pid_t pid) const;
  // Removes a worker that was reaped, and closes its pidfd. The worker must be in the table.
  void remove(int number);

  std::map<int, Worker>& all() { return workers_; }  // running or not yet reaped; by number
  bool none_at_work() const;                         // true if there are only spares
  bool has_spares() const;
  bool any_kept() const;  // workers whose process has ended and that still count as running
  // These processes without the spares.
  std::vector<pid_t> without_spares(std::vector<pid_t> processes) const;

  // Marks of the workers' processes, including workers that have ended since the last forget_ended().
  std::vector<WorkerMark> marks() const;
  // Records that a signal that ends programs was sent to that worker's group.
  void note_reached(int number, int signal);
  void note_speaker(int number, pid_t pid);
  void forget_ended();

 private:
  std::map<int, Worker> workers_;
  std::map<int, int> number_of_pidfd_;
  void close_pidfd(Worker& worker);
  WorkerMark* newest_mark(int number);
  std::vector<WorkerMark> marks_;  // marks of workers and spares, in the order of their starts
};

}  // namespace ddprun::guardian
