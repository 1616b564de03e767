// The guardian's workers and spares by number, and what marks their processes. guardian.cpp owns one. It opens and
// closes their pidfds; it neither signals nor reaps.
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
    bool killed = false;          // the agent has had it killed
    bool spare = false;           // it belongs to no round yet
    std::int64_t stopped_us = 0;  // since when it is stopped (stops.hpp); 0: it is not
    bool overdue = false;         // the guardian has killed it at the agent's deadline
    bool stopping = false;        // the agent stops it
    // Its process has ended, and what it has left still counts as the worker: the notice of its end.
    std::optional<Notice> ending{};
    bool awaited_is_told = false;  // kIsAwaited was sent
  };

  // Adds a process that has just started, and opens its pidfd.
  const Worker& add(int number, pid_t pid, std::int64_t started_us, bool spare, WorkerMark mark = {});
  // The spare is a worker from here on. False: no spare has that number.
  bool employ(int number, const std::string& rank = {}, int store_port = 0);
  // The worker's process was reaped, and what it has left still counts as the worker. Closes its pidfd.
  void keep_ended(int number, const Notice& ending);
  // Null when no worker with that number is left to be reaped.
  Worker* find(int number);
  std::optional<int> number_of_pidfd(int pidfd) const;
  std::optional<int> number_of_process(pid_t pid) const;
  // Removes a worker that was reaped, and closes its pidfd. The worker must be in the table.
  void remove(int number);

  std::map<int, Worker>& all() { return workers_; }  // running or not yet reaped; by number
  bool none_at_work() const;                         // there are only spares
  bool has_spares() const;
  bool any_kept() const;  // workers whose process has ended and that still count as running
  // These processes without the spares.
  std::vector<pid_t> without_spares(std::vector<pid_t> processes) const;

  // What marks the processes of workers, of ended ones since the last forget_ended() too.
  std::vector<WorkerMark> marks() const;
  // A signal that ends programs was sent to that worker's group.
  void note_reached(int number, int signal);
  void note_speaker(int number, pid_t pid);
  void forget_ended();

 private:
  std::map<int, Worker> workers_;
  std::map<int, int> number_of_pidfd_;
  void close_pidfd(Worker& worker);
  WorkerMark* newest_mark(int number);
  std::vector<WorkerMark> marks_;  // of spares too, in the order of their starts
};

}  // namespace ddprun::guardian
