// Implementation of guardian_loop.hpp: one epoll loop over the agent's socket (agent_socket.hpp), a signalfd, three timers and
// the pidfds of the workers (worker_table.hpp).
//
// Note: the order of exits. The kernel merges several SIGCHLDs into one, and waitid() returns children in the order of their
// creation. But epoll returns pidfds in the order in which they became readable. So workers are reaped by pidfd, and the first
// worker that exits gets the earliest time. SIGCHLD is only used for orphans.
#include "launcher/guardian/guardian_loop.hpp"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/system/realtime.hpp"
#include "launcher/guardian/guardian_signals.hpp"
#include "launcher/guardian/stops.hpp"
#include "launcher/leftovers/process_tree.hpp"

namespace ddprun::guardian {
namespace {

// Time from a round's start until its workers are moved into cgroups (worker_cgroups.hpp gives the reason).
constexpr std::int64_t kPlacingAfterNs = 200'000'000;

// Calls `part` and reports its exceptions. A failed check is a bug in ddprun, but the guardian must continue, since workers
// must not run without a guardian.
template <class Part>
void catch_errors(const Part& part) {
  try {
    part();
  } catch (const InternalError& error) {
    ::dprintf(STDERR_FILENO, "ddprun: in the guardian: %s\n", error.what());
  }
}

}  // namespace

Guardian::Guardian(const GuardianSettings& settings) : agent_(move_up(settings.socket)), open_files_(settings.open_files) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  for (const int number : kForwardedSignals) sigaddset(&child, number);
  signals_ = move_up(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  epoll_ = move_up(::epoll_create1(EPOLL_CLOEXEC));
  if (signals_ < 0 || epoll_ < 0 || ::pipe2(error_pipe_, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "setting up the guardian");
  }
  for (int& fd : error_pipe_) fd = move_up(fd);
  placing_.open();
  watch(agent_.descriptor(), EPOLLIN);
  watch(signals_, EPOLLIN);
  if (placing_.fd() >= 0) watch(placing_.fd(), EPOLLIN);
  if (sweeper_.timer() >= 0) watch(sweeper_.timer(), EPOLLIN);
  memory_.begin();
}

void Guardian::watch(int fd, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0 && errno == EEXIST) ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void Guardian::stop_watching(int fd) const {
  // A forked child may still have a copy of the descriptor before its exec. With such a copy, close() alone would not remove
  // the descriptor from the epoll set.
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void Guardian::run() {
  std::array<epoll_event, 64> events{};
  for (bool agent_lost = false;;) {
    if (agent_.agent_is_gone()) {
      // After a clean end of the job, the guardian may still wait: processes that earlier rounds left behind have a grace
      // period before they are killed.
      if (!clean_shutdown_ || !sweeper_.state().has_only_kept()) return;
      if (!std::exchange(agent_lost, true)) stop_watching(agent_.descriptor());
    }
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // epoll failed: after the return the guardian kills all workers and exits, which the agent detects
    bool orphans = false;
    for (const epoll_event& event : std::span(events).first(static_cast<std::size_t>(count))) {
      if (event.data.fd == signals_) {
        orphans = true;
      } else {
        catch_errors([&] { on_ready(event); });
      }
    }
    catch_errors([&] {
      if (orphans) reap_orphans();
    });
    flush();
    if (sweeper_.state().take_end_of_round()) begin_next_round();
  }
}

void Guardian::on_ready(const epoll_event& event) {
  const int fd = event.data.fd;
  if (store_.on_ready(event)) return;
  if (fd == agent_.descriptor()) {
    if ((event.events & EPOLLOUT) != 0) flush();
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) receive_requests();
  } else if (fd == deadline_.fd()) {
    on_lease_expired();
  } else if (fd == placing_.fd()) {
    place_workers();
  } else if (fd == sweeper_.timer()) {
    check_leftovers();
  } else if (const auto number = workers_.number_of_pidfd(fd)) {
    reap_worker(*number);
  }
}

void Guardian::receive_requests() {
  while (const auto received = agent_.receive()) catch_errors([&] { handle(*received); });
}

void Guardian::handle(const ReceivedRequest& received) {
  const Request& request = received.request;
  switch (request.kind) {
    case Request::Kind::kSpawn:
      return spawn(received);
    case Request::Kind::kActivate:
      return activate(request);
    case Request::Kind::kSignal:
      return signal(request);
    case Request::Kind::kCleanShutdown:
      clean_shutdown_ = true;
      return;
    case Request::Kind::kDeadline:
      return set_deadline(request.deadline_ns);
    case Request::Kind::kSetDeathNotice:
      death_notice_ = request.death_notice;
      return;
    case Request::Kind::kSweep:
      return sweeper_.order(
          {.how = request.how, .timeout = SweepState::Time(request.timeout_ms), .next_round = request.next_round != 0});
    case Request::Kind::kChannelPid:
      return workers_.note_channel_pid(request.worker, request.pid);
    case Request::Kind::kReport:
      return keep_report(received);
    case Request::Kind::kStore:
      return store_.take_socket(received, epoll_);
    case Request::Kind::kEndStore:
      return store_.end();
  }
}

void Guardian::spawn(const ReceivedRequest& received) {
  if (sweeper_.state().take_end_of_round()) begin_next_round();
  const int number = received.request.worker;
  Notice notice{.kind = Notice::Kind::kStarted, .worker = number};
  try {
    // If this process has no free descriptors, the kernel drops the descriptors of the message.
    if (received.descriptor_count < received.request.descriptors) throw std::system_error(EMFILE, std::generic_category());
    if (workers_.find(number) != nullptr)
      throw std::system_error(EEXIST, std::generic_category(), "two workers have the same number");
    const auto& fds = received.descriptors;
    const std::int64_t started_us = monotonic_us();
    const int standard_input = received.request.shares_input != 0 ? STDIN_FILENO : -1;
    const UnpackedRequest what = unpack(received.what_to_run());
    notice.pid = spawn_worker(number, what, {standard_input, fds[0].get(), fds[1].get(), received.channel()}, error_pipe_[1],
                              open_files_);
    notice.time_ns = realtime_ns();
    agent_.notify(notice);
    const Worker& worker = workers_.add(number, notice.pid, started_us, received.request.spare != 0,
                                        mark_of(number, what.arguments, what.environment));
    if (worker.pidfd >= 0) watch(worker.pidfd, EPOLLIN);
    if (!worker.spare) place_later();
  } catch (const std::system_error& error) {
    notice.kind = Notice::Kind::kNotStarted;
    notice.error = error.code().value();
    notice.time_ns = realtime_ns();
    agent_.notify(notice);
  }
}

// Turns a spare interpreter into a worker. The spare was started in an earlier round, so the state of that round is cleared
// first.
void Guardian::activate(const Request& request) {
  if (sweeper_.state().take_end_of_round()) begin_next_round();
  if (workers_.activate(request.worker, std::to_string(request.rank), request.store_port)) place_later();
}

void Guardian::place_later() {
  if (!placing_.is_set()) placing_.set_after(kPlacingAfterNs);
}

void Guardian::place_workers() {
  if (!placing_.take_expiry()) return;
  for (const auto& [number, worker] : workers_.all()) {
    if (!worker.spare && !worker.ending && cgroups_.cgroup_of(number).folder.empty() && !cgroups_.place(number, worker.pid))
      return;
  }
}

// Sends a signal to a worker's process group. The worker is not reaped yet, so no other process can have its pid. Before the
// child calls setsid(), the group does not exist, so the signal is sent to the process itself.
void Guardian::signal(const Request& request) {
  Worker* const worker = workers_.find(request.worker);
  if (worker == nullptr) return;
  const pid_t pid = worker->pid;
  const bool stops = request.stops != 0;
  if (request.signal == SIGKILL) worker->killed = true;
  if (stops) worker->stopping = true;
  // If the signal is 0 and `stops` is set, the agent has ordered the stop over the worker channel.
  if (stops || ends_programs(request.signal)) workers_.note_reached(request.worker, request.signal);
  if (worker->ending) {
    sweeper_.signal(request.worker, pid, request.signal, stops);
    return settle(request.worker);
  }
  if (request.signal == 0) return;
  const auto send = [pid](int number) {
    if (::kill(-pid, number) != 0 && errno == ESRCH) ::kill(pid, number);
  };
  send(request.signal);
  // A process that is stopped by SIGSTOP handles these signals only after SIGCONT, so SIGCONT follows.
  if (request.signal == SIGTERM || request.signal == SIGHUP) send(SIGCONT);
}

void Guardian::keep_report(const ReceivedRequest& received) {
  if (received.descriptor_count < 1) return;  // this process had no free descriptor for the memfd
  Descriptor copy(::fcntl(received.descriptors[0].get(), F_DUPFD_CLOEXEC, kWorkerChannelFd + 1));
  if (copy.get() >= 0) report_ = std::move(copy);
}

// Sets the time at which the lease expires. If the time is in the past, the lease expires immediately.
void Guardian::set_deadline(std::int64_t deadline_ns) {
  sweeper_.state().on_lease_renewed();
  if (deadline_.fd() < 0) {
    if (deadline_ns == 0) return;
    if (!deadline_.open()) throw std::system_error(errno, std::generic_category(), "creating the guardian's timer");
    watch(deadline_.fd(), EPOLLIN);
  }
  deadline_.set_at(deadline_ns);
}

// Kills the workers. Another coordinator may lead the job by now and may have started a round. That round must not run at the
// same time as these workers.
void Guardian::on_lease_expired() {
  if (!deadline_.take_expiry()) return;
  for (auto& [number, worker] : workers_.all()) worker.lease_expired = !worker.spare;
  sweeper_.on_lease_expired();
}

// Clears the state of the previous round. This is done after the notice of the round's end was sent, while the agent handles
// this notice.
void Guardian::begin_next_round() {
  workers_.forget_ended();
  cgroups_.end_round();
  memory_.begin();
}

// Sends queued notices. If some notices remain queued, the loop waits until the socket is writable.
void Guardian::flush() {
  if (agent_.agent_is_gone()) return;
  agent_.flush();
  if (writing_ == agent_.has_more_to_send()) return;
  writing_ = agent_.has_more_to_send();
  watch(agent_.descriptor(), writing_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// ---- exits of workers and of other descendants ----

void Guardian::reap_orphans() {
  for (signalfd_siginfo info{}; ::read(signals_, &info, sizeof info) > 0;) {
    if (info.ssi_signo != SIGCHLD) pass_on(info, agent_);
  }
  notify_stops(workers_, agent_, monotonic_us());
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    if (const auto number = workers_.number_of_process(info.si_pid)) {
      reap_worker(*number);
    } else {
      ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
      store_.reaped(info);
    }
  }
  if (sweeper_.state().needs_scan() || workers_.any_kept()) check_leftovers();
}

void Guardian::reap_worker(int number) {
  const Worker* const worker = workers_.find(number);
  if (worker == nullptr) return;
  siginfo_t info{};
  rusage usage{};  // contains the peak memory of the worker; the C library's waitid() does not return it
  if (::syscall(SYS_waitid, P_PID, worker->pid, &info, WEXITED | WNOHANG, &usage) != 0 || info.si_pid == 0) return;
  read_spawn_errors();
  Notice notice{.kind = Notice::Kind::kExited, .worker = number, .pid = worker->pid, .time_ns = realtime_ns()};
  if (info.si_code == CLD_EXITED) {
    notice.code = info.si_status;
  } else {
    notice.signal = info.si_status;
    notice.core_dumped = info.si_code == CLD_DUMPED ? 1 : 0;
  }
  notice.lease_expired = worker->lease_expired && notice.signal == SIGKILL ? 1 : 0;
  const ExitStatus status{.code = notice.code, .signal = notice.signal};
  if (!status.ok() && !worker->killed && notice.lease_expired == 0) {
    notice.memory = memory_.evidence_of({.status = status,
                                         .pid = worker->pid,
                                         .started_us = worker->started_us,
                                         .peak_bytes = static_cast<std::int64_t>(usage.ru_maxrss) * 1024},
                                        cgroups_.cgroup_of(number));
  }
  if (const auto error = spawn_errors_.find(number); error != spawn_errors_.end()) {
    notice.error = error->second.error;
    notice.stage = static_cast<std::int32_t>(error->second.stage);
    spawn_errors_.erase(error);
  }
  if (worker->pidfd >= 0) stop_watching(worker->pidfd);
  for (const int died_of : {status.signal, status.code - 128}) {
    if (ends_programs(died_of)) workers_.note_reached(number, died_of);
  }
  using Ended = SweepState::Ended;
  const Ended how = worker->stopping ? Ended::kStopped : status.ok() ? Ended::kDone : Ended::kFailed;
  if (worker->spare || worker->killed || !sweeper_.worker_left(number, how)) return worker_ended(number, notice);
  workers_.keep_ended(number, notice);
  settle(number);
}

void Guardian::worker_ended(int number, Notice notice) {
  sweeper_.forget_worker(number);
  cgroups_.forget(number);
  const bool spare = workers_.find(number)->spare;
  workers_.remove(number);
  if (!spare && workers_.none_at_work() && sweeper_.state().last_worker_ended(has_children())) notice.no_children_left = 1;
  agent_.notify(notice);
}

// Decides whether a worker whose process has exited still counts as running, because processes that it left behind still work.
// If not, reports the worker's end to the agent.
void Guardian::settle(int number) {
  Worker* const worker = workers_.find(number);
  if (worker == nullptr || !worker->ending) return;
  if (!sweeper_.counts_as_running(number)) {
    Notice notice = *worker->ending;
    notice.time_ns = realtime_ns();
    notice.lease_expired = worker->lease_expired ? 1 : notice.lease_expired;
    return worker_ended(number, notice);
  }
  if (worker->killed) return sweeper_.kill_left_by(number);
  const auto pid = worker->stopping ? std::nullopt : sweeper_.works_for(number);
  if (!pid || std::exchange(worker->awaited_sent, true)) return;
  Notice notice{.kind = Notice::Kind::kLeftoverAwaited, .worker = number, .pid = *pid, .time_ns = realtime_ns()};
  leftover_name(*pid).copy(notice.text.data(), notice.text.size() - 1);
  agent_.notify(notice);
}

// Checks the leftover processes. The loop calls this when a child has exited or the sweeper's timer fires.
void Guardian::check_leftovers() {
  sweeper_.scan();
  std::vector<int> kept;
  for (const auto& [number, worker] : workers_.all()) {
    if (worker.ending) kept.push_back(number);
  }
  for (const int number : kept) settle(number);
}

// Returns the children that workers left behind: all children except workers, spares and the store.
std::vector<pid_t> Guardian::left() const {
  std::vector<pid_t> children = store_.without(children_of_this_process());
  std::erase_if(children, [this](pid_t pid) { return workers_.number_of_process(pid).has_value(); });
  return children;
}

void Guardian::read_spawn_errors() {
  SpawnError error;
  while (::read(error_pipe_[0], &error, sizeof error) == static_cast<ssize_t>(sizeof error))
    spawn_errors_[error.worker] = error;
}

// Returns all children except the store and the spares, which survive the end of a round.
std::vector<pid_t> Guardian::children_of_round() const {
  return workers_.without_spares(store_.without(children_of_this_process()));
}

bool Guardian::has_children() const {
  if (store_.is_running() || workers_.has_spares()) return !children_of_round().empty();
  return guardian::has_children();
}

void Guardian::on_leftover_ended(const std::string& name) {
  Notice notice{.kind = Notice::Kind::kLeftoverEnded, .worker = -1, .time_ns = realtime_ns()};
  name.copy(notice.text.data(), notice.text.size() - 1);
  agent_.notify(notice);
}

}  // namespace ddprun::guardian
