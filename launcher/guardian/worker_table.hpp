// The guardian's workers and spares by number, and the process groups that they have led. guardian.cpp owns one. It opens and
// closes their pidfds; it neither signals nor reaps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

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
  };

  // Adds a process that has just started, and opens its pidfd.
  const Worker& add(int number, pid_t pid, std::int64_t started_us, bool spare);
  // The spare is a worker from here on. False: no spare has that number.
  bool employ(int number);
  // Null when no worker with that number is left to be reaped.
  Worker* find(int number);
  std::optional<int> number_of_pidfd(int pidfd) const;
  std::optional<int> number_of_process(pid_t pid) const;
  // Removes a worker that was reaped, and closes its pidfd. The worker must be in the table.
  void remove(int number);

  std::map<int, Worker>& all() { return workers_; }  // running or not yet reaped; by number
  bool none_at_work() const;                         // there are only spares
  bool has_spares() const;
  // These processes without the spares.
  std::vector<pid_t> without_spares(std::vector<pid_t> processes) const;

  // Whether a worker led this process group, now or earlier since the last forget_groups().
  bool was_group_of_worker(pid_t group) const { return groups_.contains(group); }
  void forget_groups() { groups_.clear(); }

 private:
  std::map<int, Worker> workers_;
  std::map<int, int> number_of_pidfd_;
  std::set<pid_t> groups_;
};

}  // namespace ddprun::guardian
