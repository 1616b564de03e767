// Implementation of worker_table.hpp: two maps, since epoll names a worker by its pidfd and the agent by its number.
#include "launcher/guardian/worker_table.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/check.hpp"

namespace ddprun::guardian {

const WorkerTable::Worker& WorkerTable::add(int number, pid_t pid, std::int64_t started_us) {
  check(!workers_.contains(number), "two workers go by one number");
  groups_.insert(pid);
  Worker worker{.pid = pid, .started_us = started_us};
  worker.pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (worker.pidfd >= 0) number_of_pidfd_[worker.pidfd] = number;
  return workers_[number] = worker;
}

WorkerTable::Worker* WorkerTable::find(int number) {
  const auto found = workers_.find(number);
  return found == workers_.end() ? nullptr : &found->second;
}

std::optional<int> WorkerTable::number_of_pidfd(int pidfd) const {
  const auto found = number_of_pidfd_.find(pidfd);
  return found == number_of_pidfd_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int> WorkerTable::number_of_process(pid_t pid) const {
  const auto found = std::find_if(workers_.begin(), workers_.end(), [&](const auto& w) { return w.second.pid == pid; });
  return found == workers_.end() ? std::nullopt : std::optional(found->first);
}

void WorkerTable::remove(int number) {
  const auto found = workers_.find(number);
  check(found != workers_.end(), "a worker is forgotten that is not known");
  if (found->second.pidfd >= 0) {
    number_of_pidfd_.erase(found->second.pidfd);
    ::close(found->second.pidfd);
  }
  workers_.erase(found);
}

}  // namespace ddprun::guardian
