// Implementation of worker_table.hpp: two maps, since epoll names a worker by its pidfd and the agent by its number.
#include "launcher/guardian/worker_table.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "common/base/check.hpp"

namespace ddprun::guardian {

const WorkerTable::Worker& WorkerTable::add(int number, pid_t pid, std::int64_t started_us, bool spare) {
  check(!workers_.contains(number), "two workers go by one number");
  groups_.insert(pid);
  Worker worker{.pid = pid, .started_us = started_us, .spare = spare};
  worker.pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (worker.pidfd >= 0) number_of_pidfd_[worker.pidfd] = number;
  return workers_[number] = worker;
}

bool WorkerTable::employ(int number) {
  Worker* const worker = find(number);
  if (worker == nullptr || !worker->spare) return false;
  worker->spare = false;
  groups_.insert(worker->pid);
  return true;
}

bool WorkerTable::none_at_work() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& one) { return one.second.spare; });
}

bool WorkerTable::has_spares() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& one) { return one.second.spare; });
}

std::vector<pid_t> WorkerTable::without_spares(std::vector<pid_t> processes) const {
  std::erase_if(processes, [this](pid_t pid) {
    const auto number = number_of_process(pid);
    return number && workers_.at(*number).spare;
  });
  return processes;
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
