#include "launcher/leftovers/leftover_sweeper.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "launcher/leftovers/process_tree.hpp"

namespace ddprun::guardian {
namespace {

// Signals the process and all its descendants, since SweepState contains only the children of the guardian.
void signal_with_descendants(pid_t pid, int signal) {
  for (const pid_t below : descendants_of(pid)) ::kill(below, signal);
  ::kill(pid, signal);
}

}  // namespace

SweepState::Time LeftoverSweeper::now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return SweepState::Time(static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000);
}

bool LeftoverSweeper::worker_left(int worker, SweepState::Ended how) {
  if (how == SweepState::Ended::kFailed) return false;
  const std::vector<pid_t> left = guardian_.left();
  if (left.empty()) return false;
  state_.worker_left(worker, how, read_leftovers(), now());
  if (!counts_as_running(worker)) {
    state_.forget_worker(worker);
    return false;
  }
  scan();
  return true;
}

void LeftoverSweeper::signal(int worker, pid_t group, int signal, bool stops) {
  scan();  // if the parent of a process has just ended, that process is a new leftover
  bool group_lives = false;
  for (const pid_t pid : state_.left_by(worker)) {
    const bool in_group = ::getpgid(pid) == group;
    group_lives = group_lives || in_group;
    if (signal == SIGKILL) guardian_.on_leftover_ended(leftover_name(pid));
    if (signal == 0) continue;
    if (!in_group) signal_with_descendants(pid, signal);
  }
  if (group_lives && signal != 0) ::kill(-group, signal);
  if (!stops) return;
  state_.worker_stopped(worker, signal != SIGINT && signal != SIGQUIT);
  scan();  // leftovers that ignore SIGINT or SIGQUIT get SIGTERM
}

void LeftoverSweeper::kill_left_by(int worker) const {
  for (const pid_t pid : state_.left_by(worker)) signal_with_descendants(pid, SIGKILL);
}

void LeftoverSweeper::scan() {
  timer_.take_expiry();
  carry_out(state_.step(read_leftovers(), now()));
}

std::vector<SweepState::Observation> LeftoverSweeper::read_leftovers() {
  std::vector<SweepState::Observation> observed;
  const std::vector<pid_t> left = guardian_.left();
  std::erase_if(cpu_, [&](const auto& one) { return std::find(left.begin(), left.end(), one.first) == left.end(); });
  if (left.empty()) return observed;
  const std::vector<WorkerMark> workers = guardian_.workers();
  for (const pid_t pid : left) {
    SweepState::Observation& one = observed.emplace_back(probe_leftover(pid, workers));
    one.busy = is_busy(pid, one.cpu_ticks);
  }
  return observed;
}

// Returns true if the process has used CPU time. The time is measured over at least half a second: scans after exits of other
// children may follow each other too quickly.
bool LeftoverSweeper::is_busy(pid_t pid, std::int64_t ticks) {
  constexpr std::int64_t kFewTicks = 3;  // three ticks are 30 ms if a tick is 10 ms
  const SweepState::Time time = now();
  const auto [found, is_new] = cpu_.try_emplace(pid, Cpu{.ticks = ticks, .at = time});
  Cpu& one = found->second;
  if (is_new || time < one.at + SweepState::kGrace / 2) return one.busy;
  one = {.ticks = ticks, .at = time, .busy = ticks - one.ticks >= kFewTicks};
  return one.busy;
}

void LeftoverSweeper::carry_out(const SweepState::Orders& orders) {
  if (orders.kill_cgroups) guardian_.kill_cgroups();
  for (const pid_t pid : orders.named) guardian_.on_leftover_ended(leftover_name(pid));
  for (const pid_t pid : orders.terminate) {
    signal_with_descendants(pid, SIGTERM);
    signal_with_descendants(pid, SIGCONT);  // a suspended process would not handle the signal
  }
  for (const pid_t pid : orders.kill) signal_with_descendants(pid, SIGKILL);
  if (orders.kill_children) guardian_.kill_children();
  if (orders.swept) guardian_.on_swept();
  const auto at = orders.scan_at ? std::max(*orders.scan_at, SweepState::Time(1)) : SweepState::Time(0);  // 0 disarms the timer
  timer_.set_at(std::chrono::nanoseconds(at).count());
}

}  // namespace ddprun::guardian
