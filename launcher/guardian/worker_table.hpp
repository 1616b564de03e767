// The table of the guardian's workers: who runs under which number, and which process groups were theirs. guardian.cpp owns
// one. It makes and closes their pidfds; it neither signals nor reaps.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace ddprun::guardian {

class WorkerTable {
 public:
  struct Worker {
    pid_t pid = 0;
    int pidfd = -1;               // -1: the kernel gave none; SIGCHLD does instead
    std::int64_t started_us = 0;  // CLOCK_MONOTONIC
    bool killed = false;          // the agent asked for SIGKILL
    bool overdue = false;         // killed at the deadline
  };

  // Adds a process that was started just now, and opens its pidfd.
  const Worker& add(int number, pid_t pid, std::int64_t started_us);
  // Null when no worker of that number is left to be reaped.
  Worker* find(int number);
  std::optional<int> number_of_pidfd(int pidfd) const;
  std::optional<int> number_of_process(pid_t pid) const;
  // Forgets a worker that was reaped and closes its pidfd. It must be there.
  void remove(int number);

  std::map<int, Worker>& all() { return workers_; }  // running, or not reaped yet, by number
  bool empty() const { return workers_.empty(); }

  // Whether a worker led this process group, now or earlier since the last forget_groups().
  bool was_group_of_worker(pid_t group) const { return groups_.contains(group); }
  void forget_groups() { groups_.clear(); }

 private:
  std::map<int, Worker> workers_;
  std::map<int, int> number_of_pidfd_;
  std::set<pid_t> groups_;
};

}  // namespace ddprun::guardian
