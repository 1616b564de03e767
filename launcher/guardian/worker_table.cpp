// Implementation of worker_table.hpp. It has two maps, since epoll identifies a worker by its pidfd and the agent by its
// number.
#include "launcher/guardian/worker_table.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/base/check.hpp"

namespace ddprun::guardian {

const WorkerTable::Worker& WorkerTable::add(int number, pid_t pid, std::int64_t started_us, bool spare, WorkerMark mark) {
  check(!workers_.contains(number), "two workers have the same number");
  mark.number = number;
  mark.pid = pid;
  marks_.push_back(std::move(mark));
  Worker worker{.pid = pid, .started_us = started_us, .spare = spare};
  worker.pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (worker.pidfd >= 0) number_of_pidfd_[worker.pidfd] = number;
  return workers_[number] = worker;
}

bool WorkerTable::activate(int number, const std::string& rank, int store_port) {
  Worker* const worker = find(number);
  if (worker == nullptr || !worker->spare) return false;
  worker->spare = false;
  if (WorkerMark* const mark = newest_mark(number)) {
    mark->rank = rank;
    mark->store_port = store_port;
  }
  return true;
}

void WorkerTable::keep_ended(int number, const Notice& ending) {
  Worker* const worker = find(number);
  check(worker != nullptr, "the end of an unknown worker was recorded");
  close_pidfd(*worker);
  worker->ending = ending;
}

std::vector<WorkerMark> WorkerTable::marks() const {
  std::vector<WorkerMark> marks;
  for (const WorkerMark& mark : marks_) {
    const auto found = workers_.find(mark.number);
    const bool waits = found != workers_.end() && found->second.pid == mark.pid && found->second.spare;
    if (!waits) marks.push_back(mark);
  }
  return marks;
}

void WorkerTable::note_reached(int number, int signal) {
  WorkerMark* const mark = newest_mark(number);
  if (mark == nullptr) return;
  if (signal == 0) mark->ordered = true;
  if (signal > 0 && signal <= 64) mark->signals |= std::uint64_t{1} << (signal - 1);
}

void WorkerTable::note_channel_pid(int number, pid_t pid) {
  if (WorkerMark* const mark = newest_mark(number)) mark->channel_pid = pid;
}

void WorkerTable::forget_ended() {
  std::erase_if(marks_, [this](const WorkerMark& mark) {
    const auto found = workers_.find(mark.number);
    return found == workers_.end() || found->second.pid != mark.pid;
  });
}

WorkerMark* WorkerTable::newest_mark(int number) {
  const auto found =
      std::find_if(marks_.rbegin(), marks_.rend(), [number](const WorkerMark& mark) { return mark.number == number; });
  return found == marks_.rend() ? nullptr : &*found;
}

bool WorkerTable::none_at_work() const {
  return std::all_of(workers_.begin(), workers_.end(), [](const auto& one) { return one.second.spare; });
}

bool WorkerTable::any_kept() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const auto& one) { return one.second.ending.has_value(); });
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
  const auto found =
      std::find_if(workers_.begin(), workers_.end(), [&](const auto& w) { return w.second.pid == pid && !w.second.ending; });
  return found == workers_.end() ? std::nullopt : std::optional(found->first);
}

void WorkerTable::remove(int number) {
  const auto found = workers_.find(number);
  check(found != workers_.end(), "an unknown worker was removed");
  close_pidfd(found->second);
  workers_.erase(found);
}

void WorkerTable::close_pidfd(Worker& worker) {
  if (worker.pidfd < 0) return;
  number_of_pidfd_.erase(worker.pidfd);
  ::close(worker.pidfd);
  worker.pidfd = -1;
}

}  // namespace ddprun::guardian
