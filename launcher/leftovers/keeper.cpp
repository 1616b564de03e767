// Implementation of keeper.hpp.
#include "launcher/leftovers/keeper.hpp"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <ctime>

#include "launcher/leftovers/process_tree.hpp"

namespace ddprun::guardian {
namespace {

// Signals the process and all its descendants. SweepState knows only children of the guardian, so their descendants would be
// missed.
void signal_with_descendants(pid_t pid, int signal) {
  for (const pid_t below : descendants_of(pid)) ::kill(below, signal);
  ::kill(pid, signal);
}

}  // namespace

Keeper::~Keeper() {
  if (timer_ >= 0) ::close(timer_);
}

int Keeper::timer() {
  if (timer_ < 0) timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  return timer_;
}

SweepState::Time Keeper::now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return SweepState::Time(static_cast<std::int64_t>(time.tv_sec) * 1000 + time.tv_nsec / 1'000'000);
}

bool Keeper::worker_left(int worker, SweepState::Ended how) {
  if (how == SweepState::Ended::kFailed) return false;
  const std::vector<pid_t> left = hooks_.left();
  if (left.empty()) return false;
  state_.worker_left(worker, how, see(), now());
  if (!keeps(worker)) {
    state_.forget_worker(worker);
    return false;
  }
  look();
  return true;
}

void Keeper::signal(int worker, pid_t group, int signal, bool stops) {
  look();  // finds a process whose parent has just ended
  bool group_lives = false;
  for (const pid_t pid : state_.left_by(worker)) {
    const bool in_group = ::getpgid(pid) == group;
    group_lives = group_lives || in_group;
    if (signal == SIGKILL) hooks_.ended(leftover_name(pid));
    if (signal == 0) continue;
    if (!in_group) signal_with_descendants(pid, signal);
  }
  if (group_lives && signal != 0) ::kill(-group, signal);
  if (!stops) return;
  state_.worker_stopped(worker, signal != SIGINT && signal != SIGQUIT);
  look();  // leftovers that ignore SIGINT get SIGTERM
}

void Keeper::kill_left_by(int worker) const {
  for (const pid_t pid : state_.left_by(worker)) signal_with_descendants(pid, SIGKILL);
}

void Keeper::look() {
  if (timer_ >= 0) {
    std::uint64_t ignored = 0;
    [[maybe_unused]] const ssize_t n = ::read(timer_, &ignored, sizeof ignored);
  }
  carry_out(state_.step(see(), now()));
}

std::vector<SweepState::Seen> Keeper::see() {
  std::vector<SweepState::Seen> seen;
  const std::vector<pid_t> left = hooks_.left();
  std::erase_if(cpu_, [&](const auto& one) { return std::find(left.begin(), left.end(), one.first) == left.end(); });
  if (left.empty()) return seen;
  const std::vector<WorkerMark> workers = hooks_.workers();
  for (const pid_t pid : left) {
    const LeftoverLook look = look_at_leftover(pid, workers);
    seen.push_back({.pid = pid,
                    .worker = look.worker,
                    .connected = look.connected,
                    .same_program = look.same_program,
                    .holds = look.holds,
                    .catches = look.catches,
                    .reached = look.reached,
                    .busy = is_busy(pid, look.cpu_ticks),
                    .age = look.age});
  }
  return seen;
}

// Measures over at least half a second, since deaths of other children lead to additional looks.
bool Keeper::is_busy(pid_t pid, std::int64_t ticks) {
  constexpr std::int64_t kFewTicks = 3;  // 30 ms where a tick is 10 ms
  const SweepState::Time time = now();
  const auto [found, is_new] = cpu_.try_emplace(pid, Cpu{.ticks = ticks, .at = time});
  Cpu& one = found->second;
  if (is_new || time < one.at + SweepState::kGrace / 2) return one.busy;
  one = {.ticks = ticks, .at = time, .busy = ticks - one.ticks >= kFewTicks};
  return one.busy;
}

void Keeper::carry_out(const SweepState::Orders& orders) {
  if (orders.kill_cgroups) hooks_.kill_cgroups();
  for (const pid_t pid : orders.named) hooks_.ended(leftover_name(pid));
  for (const pid_t pid : orders.terminate) {
    signal_with_descendants(pid, SIGTERM);
    signal_with_descendants(pid, SIGCONT);  // a stopped process could not handle the signal
  }
  for (const pid_t pid : orders.kill) signal_with_descendants(pid, SIGKILL);
  if (orders.kill_children) hooks_.kill_children();
  if (orders.swept) hooks_.swept();
  set_timer(orders.look_at);
}

void Keeper::set_timer(std::optional<SweepState::Time> when) {
  if (!when && timer_ < 0) return;
  itimerspec at{};
  if (when) {
    const std::int64_t ms = std::max<std::int64_t>(1, when->count());  // 0 would disarm it
    at.it_value.tv_sec = static_cast<time_t>(ms / 1000);
    at.it_value.tv_nsec = static_cast<long>(ms % 1000) * 1'000'000;
  }
  ::timerfd_settime(timer(), TFD_TIMER_ABSTIME, &at, nullptr);
}

}  // namespace ddprun::guardian
