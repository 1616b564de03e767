// Implementation of guardian.hpp: one epoll loop over the agent's socket (agent_socket.hpp), signals, three timers and the
// pidfds of the workers (worker_table.hpp).
//
// Note [Why this file is long]
// It is the guardian's only event loop, and each event changes the same table of workers. Parts with their own state are in
// other files: the socket, the table, the store, the leftovers, the cgroups, the memory counters.
//
// Note: the order of deaths. The kernel merges several SIGCHLDs into one, and waitid() returns children in the order of their
// creation. But epoll returns pidfds in the order in which they became readable. So workers are reaped by pidfd, and the first
// to die gets the earlier time. SIGCHLD is used for orphans.
#include "launcher/guardian/guardian.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/check.hpp"
#include "common/base/error.hpp"
#include "common/system/realtime.hpp"
#include "launcher/guardian/agent_socket.hpp"
#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/guardian/guardian_report.hpp"
#include "launcher/guardian/memory_watch.hpp"
#include "launcher/guardian/process_title.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/guardian/stops.hpp"
#include "launcher/guardian/store_starter.hpp"
#include "launcher/guardian/worker_cgroups.hpp"
#include "launcher/guardian/worker_table.hpp"
#include "launcher/leftovers/keeper.hpp"
#include "launcher/leftovers/process_tree.hpp"
#include "launcher/machine/cgroup_folders.hpp"

namespace ddprun::guardian {
namespace {

// Delay from a round's start until its workers get cgroups (worker_cgroups.hpp explains why).
constexpr std::int64_t kPlacingAfterNs = 200'000'000;

std::int64_t monotonic_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

// Signals by which programs stop a job. If a worker sends one to its parent, the guardian, it is passed on to the agent.
constexpr std::array<int, 4> kPassedOn{SIGTERM, SIGINT, SIGHUP, SIGQUIT};

// True for signals at which programs save and end.
bool ends_programs(int signal) {
  return std::ranges::find(kPassedOn, signal) != kPassedOn.end() || signal == SIGUSR1 || signal == SIGUSR2;
}

// A failed check is a bug in ddprun. Workers must not be left without a guardian because of it, so it is reported and the
// guardian continues.
template <class Part>
void without_dying(const Part& part) {
  try {
    part();
  } catch (const InternalError& error) {
    ::dprintf(STDERR_FILENO, "ddprun: in the guardian: %s\n", error.what());
  }
}

class Guardian {
 public:
  explicit Guardian(const GuardianSettings& settings);
  void run();
  bool agent_said_farewell() const { return farewell_; }
  const LastWord& last_word() const { return last_word_; }
  int newest_report() const { return report_; }
  WorkerCgroups& cgroups() { return cgroups_; }
  void end_store() { store_.end(); }

 private:
  using Worker = WorkerTable::Worker;

  void on_ready(const epoll_event& event);
  void watch(int fd, std::uint32_t events) const;
  void stop_watching(int fd) const;
  void receive_requests();
  void handle(const ReceivedRequest& received);
  void spawn(const ReceivedRequest& received);
  void employ(const Request& request);
  void signal(const Request& request);
  void keep_report(const ReceivedRequest& received);
  void place_later();
  void place_workers();
  MemoryEvidence memory_of(int number, const Worker& worker, const ExitStatus& status, const rusage& usage) const;
  void set_deadline(std::int64_t deadline_ns);
  void end_of_grant();
  Keeper::Hooks keeper_hooks();
  std::vector<pid_t> left() const;
  void look_at_leftovers();
  void settle(int number);
  void begin_next_round();
  void reap_worker(int worker);
  void worker_ended(int number, Notice notice);
  void reap_orphans();
  void pass_on(const signalfd_siginfo& info);
  void read_spawn_errors();
  void flush();
  std::vector<pid_t> children_of_round() const;
  bool has_children() const;

  AgentSocket agent_;
  rlimit open_files_;
  int epoll_ = -1;
  int signals_ = -1;
  int deadline_ = -1;  // a timer, made when it is first needed
  int placing_ = -1;   // a timer
  bool placing_is_set_ = false;
  const CgroupFolders folders_ = cgroups_of_this_process();
  WorkerCgroups cgroups_{folders_};
  MemoryWatch memory_{folders_};
  int error_pipe_[2] = {-1, -1};
  WorkerTable workers_;
  std::map<int, SpawnError> spawn_errors_;  // errors of workers that are not reaped yet
  Keeper keeper_{keeper_hooks()};
  StoreStarter store_{agent_};
  bool writing_ = false;  // a notice waits for free space in the socket
  bool farewell_ = false;
  LastWord last_word_;
  int report_ = -1;  // the agent's newest report
};

Guardian::Guardian(const GuardianSettings& settings) : agent_(move_up(settings.socket)), open_files_(settings.open_files) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  for (const int number : kPassedOn) sigaddset(&child, number);
  signals_ = move_up(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  epoll_ = move_up(::epoll_create1(EPOLL_CLOEXEC));
  if (signals_ < 0 || epoll_ < 0 || ::pipe2(error_pipe_, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "setting up the guardian");
  }
  for (int& fd : error_pipe_) fd = move_up(fd);
  placing_ = move_up(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  watch(agent_.descriptor(), EPOLLIN);
  watch(signals_, EPOLLIN);
  if (placing_ >= 0) watch(placing_, EPOLLIN);
  if (keeper_.timer() >= 0) watch(keeper_.timer(), EPOLLIN);
  memory_.begin();
}

void Guardian::watch(int fd, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0 && errno == EEXIST) ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void Guardian::stop_watching(int fd) const {
  // close() alone would leave it in the epoll set while a child before its exec still has a copy.
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void Guardian::run() {
  std::array<epoll_event, 64> events{};
  for (bool lingers = false;;) {
    if (agent_.agent_is_gone()) {
      // The job is over. Leftovers of earlier rounds still have their grace time, so the guardian stays for them.
      if (!farewell_ || !keeper_.state().has_only_kept()) return;
      if (!std::exchange(lingers, true)) stop_watching(agent_.descriptor());
    }
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // without epoll the guardian ends all workers, and the agent notices its death
    bool orphans = false;
    for (const epoll_event& event : std::span(events).first(static_cast<std::size_t>(count))) {
      if (event.data.fd == signals_) {
        orphans = true;
      } else {
        without_dying([&] { on_ready(event); });
      }
    }
    without_dying([&] {
      if (orphans) reap_orphans();
    });
    flush();
    if (keeper_.state().take_end_of_round()) begin_next_round();
  }
}

void Guardian::on_ready(const epoll_event& event) {
  const int fd = event.data.fd;
  if (store_.on_ready(event)) return;
  if (fd == agent_.descriptor()) {
    if ((event.events & EPOLLOUT) != 0) flush();
    if ((event.events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) receive_requests();
  } else if (fd == deadline_) {
    end_of_grant();
  } else if (fd == placing_) {
    place_workers();
  } else if (fd == keeper_.timer()) {
    look_at_leftovers();
  } else if (const auto number = workers_.number_of_pidfd(fd)) {
    reap_worker(*number);
  }
}

void Guardian::receive_requests() {
  while (const auto received = agent_.receive()) without_dying([&] { handle(*received); });
}

void Guardian::handle(const ReceivedRequest& received) {
  const Request& request = received.request;
  switch (request.kind) {
    case Request::Kind::kSpawn:
      return spawn(received);
    case Request::Kind::kEmploy:
      return employ(request);
    case Request::Kind::kSignal:
      return signal(request);
    case Request::Kind::kFarewell:
      farewell_ = true;
      return;
    case Request::Kind::kDeadline:
      return set_deadline(request.deadline_ns);
    case Request::Kind::kEntrust:
      last_word_ = request.last_word;
      return;
    case Request::Kind::kSweep:
      return keeper_.order(
          {.how = request.how, .timeout = SweepState::Time(request.timeout_ms), .next_round = request.next_round != 0});
    case Request::Kind::kSpeaker:
      return workers_.note_speaker(request.worker, request.pid);
    case Request::Kind::kReport:
      return keep_report(received);
    case Request::Kind::kStore:
      return store_.take_socket(received, epoll_);
    case Request::Kind::kEndStore:
      return store_.end();
  }
}

void Guardian::spawn(const ReceivedRequest& received) {
  if (keeper_.state().take_end_of_round()) begin_next_round();
  const int number = received.request.worker;
  Notice notice{.kind = Notice::Kind::kStarted, .worker = number};
  try {
    // The kernel drops descriptors if this process has no free ones.
    if (received.descriptor_count < received.request.descriptors) throw std::system_error(EMFILE, std::generic_category());
    if (workers_.find(number) != nullptr) throw std::system_error(EEXIST, std::generic_category(), "two workers of one number");
    const auto& fds = received.descriptors;
    const std::int64_t started_us = monotonic_us();
    const int standard_input = received.request.shares_input != 0 ? STDIN_FILENO : -1;
    const UnpackedRequest what = unpack(received.what_to_run());
    notice.pid = spawn_worker(number, what, {standard_input, fds[0], fds[1], received.channel()}, error_pipe_[1], open_files_);
    notice.time_ns = realtime_ns();
    agent_.tell(notice);
    const Worker& worker = workers_.add(number, notice.pid, started_us, received.request.spare != 0,
                                        mark_of(number, what.arguments, what.environment));
    if (worker.pidfd >= 0) watch(worker.pidfd, EPOLLIN);
    if (!worker.spare) place_later();
  } catch (const std::system_error& error) {
    notice.kind = Notice::Kind::kNotStarted;
    notice.error = error.code().value();
    notice.time_ns = realtime_ns();
    agent_.tell(notice);
  }
}

// Ends the previous round first, since a spare was started before this round.
void Guardian::employ(const Request& request) {
  if (keeper_.state().take_end_of_round()) begin_next_round();
  if (workers_.employ(request.worker, std::to_string(request.rank), request.store_port)) place_later();
}

void Guardian::place_later() {
  if (placing_is_set_ || placing_ < 0) return;
  const itimerspec after{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kPlacingAfterNs}};
  placing_is_set_ = ::timerfd_settime(placing_, 0, &after, nullptr) == 0;
}

void Guardian::place_workers() {
  std::uint64_t ignored = 0;
  if (::read(placing_, &ignored, sizeof ignored) <= 0) return;
  placing_is_set_ = false;
  for (const auto& [number, worker] : workers_.all()) {
    if (!worker.spare && !worker.ending && cgroups_.folder_of(number).empty() && !cgroups_.place(number, worker.pid)) return;
  }
}

// The worker is not reaped yet, so its pid cannot belong to another process. Before its setsid() it has no process group.
void Guardian::signal(const Request& request) {
  Worker* const worker = workers_.find(request.worker);
  if (worker == nullptr) return;
  const pid_t pid = worker->pid;
  const bool stops = request.stops != 0;
  if (request.signal == SIGKILL) worker->killed = true;
  if (stops) worker->stopping = true;
  // A stop without a signal is an order on the worker's channel.
  if (stops || ends_programs(request.signal)) workers_.note_reached(request.worker, request.signal);
  if (worker->ending) {
    keeper_.signal(request.worker, pid, request.signal, stops);
    return settle(request.worker);
  }
  if (request.signal == 0) return;
  const auto send = [pid](int number) {
    if (::kill(-pid, number) != 0 && errno == ESRCH) ::kill(pid, number);
  };
  send(request.signal);
  // A stopped process could not handle the signal.
  if (request.signal == SIGTERM || request.signal == SIGHUP) send(SIGCONT);
}

void Guardian::keep_report(const ReceivedRequest& received) {
  if (received.descriptor_count < 1) return;  // this process has no free descriptors
  const int copy = ::fcntl(received.descriptors[0], F_DUPFD_CLOEXEC, kWorkerChannelFd + 1);
  if (copy < 0) return;
  if (report_ >= 0) ::close(report_);
  report_ = copy;
}

// A deadline in the past fires immediately.
void Guardian::set_deadline(std::int64_t deadline_ns) {
  keeper_.state().grant_renewed();
  if (deadline_ < 0) {
    if (deadline_ns == 0) return;
    deadline_ = move_up(::timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
    if (deadline_ < 0) throw std::system_error(errno, std::generic_category(), "making the guardian's timer");
    watch(deadline_, EPOLLIN);
  }
  constexpr std::int64_t kSecond = 1'000'000'000;
  itimerspec when{};
  when.it_value.tv_sec = deadline_ns / kSecond;
  when.it_value.tv_nsec = deadline_ns % kSecond;
  ::timerfd_settime(deadline_, TFD_TIMER_ABSTIME, &when, nullptr);
}

// Another coordinator may lead the job by now and start its next round. Workers of this agent must not run at the same time.
void Guardian::end_of_grant() {
  std::uint64_t ignored = 0;
  if (::read(deadline_, &ignored, sizeof ignored) <= 0) return;
  for (auto& [number, worker] : workers_.all()) worker.overdue = !worker.spare;
  keeper_.grant_ended();
}

// Killing children until none is left reaches all descendants: each SIGCHLD triggers the next pass.
Keeper::Hooks Guardian::keeper_hooks() {
  Keeper::Hooks hooks;
  hooks.left = [this] { return left(); };
  hooks.workers = [this] { return workers_.marks(); };
  hooks.kill_cgroups = [this] { cgroups_.kill(); };
  hooks.kill_children = [this] {
    for (const pid_t pid : children_of_round()) ::kill(pid, SIGKILL);
  };
  hooks.swept = [this] { agent_.tell({.kind = Notice::Kind::kSwept, .time_ns = realtime_ns()}); };
  hooks.ended = [this](const std::string& name) {
    Notice notice{.kind = Notice::Kind::kWasEnded, .worker = -1, .time_ns = realtime_ns()};
    name.copy(notice.text.data(), notice.text.size() - 1);
    agent_.tell(notice);
  };
  return hooks;
}

// Children that are neither workers nor spares nor the store.
std::vector<pid_t> Guardian::left() const {
  std::vector<pid_t> children = store_.without(children_of_this_process());
  std::erase_if(children, [this](pid_t pid) { return workers_.number_of_process(pid).has_value(); });
  return children;
}

// Called when a child has ended, or when the keeper's timer fires.
void Guardian::look_at_leftovers() {
  keeper_.look();
  std::vector<int> kept;
  for (const auto& [number, worker] : workers_.all()) {
    if (worker.ending) kept.push_back(number);
  }
  for (const int number : kept) settle(number);
}

// Checks the leftovers of a worker whose own process has ended. When they have ended too, the worker's end is reported.
// Otherwise they are awaited further.
void Guardian::settle(int number) {
  Worker* const worker = workers_.find(number);
  if (worker == nullptr || !worker->ending) return;
  if (!keeper_.keeps(number)) {
    Notice notice = *worker->ending;
    notice.time_ns = realtime_ns();
    notice.overdue = worker->overdue ? 1 : notice.overdue;
    return worker_ended(number, notice);
  }
  if (worker->killed) return keeper_.kill_left_by(number);
  const auto pid = worker->stopping ? std::nullopt : keeper_.works_for(number);
  if (!pid || std::exchange(worker->awaited_is_told, true)) return;
  Notice notice{.kind = Notice::Kind::kIsAwaited, .worker = number, .pid = *pid, .time_ns = realtime_ns()};
  leftover_name(*pid).copy(notice.text.data(), notice.text.size() - 1);
  agent_.tell(notice);
}

// Runs while the agent does its own work; the agent's next request is read afterwards.
void Guardian::begin_next_round() {
  workers_.forget_ended();
  cgroups_.end_round();
  memory_.begin();
}

// Excludes the store and the spares, since they outlive a round.
std::vector<pid_t> Guardian::children_of_round() const {
  return workers_.without_spares(store_.without(children_of_this_process()));
}

bool Guardian::has_children() const {
  if (store_.is_running() || workers_.has_spares()) return !children_of_round().empty();
  siginfo_t info{};
  return !(::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD);
}

void Guardian::reap_worker(int number) {
  const Worker* const worker = workers_.find(number);
  if (worker == nullptr) return;
  siginfo_t info{};
  rusage usage{};  // the C library's waitid() does not return it
  if (::syscall(SYS_waitid, P_PID, worker->pid, &info, WEXITED | WNOHANG, &usage) != 0 || info.si_pid == 0) return;
  read_spawn_errors();
  Notice notice{.kind = Notice::Kind::kExited, .worker = number, .pid = worker->pid, .time_ns = realtime_ns()};
  if (info.si_code == CLD_EXITED) {
    notice.code = info.si_status;
  } else {
    notice.signal = info.si_status;
    notice.core_dumped = info.si_code == CLD_DUMPED ? 1 : 0;
  }
  notice.overdue = worker->overdue && notice.signal == SIGKILL ? 1 : 0;
  const ExitStatus status{.code = notice.code, .signal = notice.signal};
  if (!status.ok() && !worker->killed && notice.overdue == 0) notice.memory = memory_of(number, *worker, status, usage);
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
  if (worker->spare || worker->killed || !keeper_.worker_left(number, how)) return worker_ended(number, notice);
  workers_.keep_ended(number, notice);
  settle(number);
}

void Guardian::worker_ended(int number, Notice notice) {
  keeper_.forget_worker(number);
  cgroups_.forget(number);
  const bool spare = workers_.find(number)->spare;
  workers_.remove(number);
  if (!spare && workers_.none_at_work() && keeper_.state().last_worker_ended(has_children())) notice.nothing_is_left = 1;
  agent_.tell(notice);
}

// The kernel log is long. It is read only if the kernel has killed some process and the counters do not show which one.
MemoryEvidence Guardian::memory_of(int number, const Worker& worker, const ExitStatus& status, const rusage& usage) const {
  MemoryEvidence evidence = memory_.take(status, cgroups_.folder_of(number), cgroups_.kills_before(number));
  evidence.worker_peak = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  const bool by_sigkill = status.signal == SIGKILL;
  const bool unsettled = evidence.machine_kills != 0 && evidence.worker_kills <= 0;
  if (by_sigkill && unsettled && kernel_log_names(worker.pid, worker.started_us)) evidence.in_kernel_log = 1;
  return evidence;
}

void Guardian::reap_orphans() {
  for (signalfd_siginfo info{}; ::read(signals_, &info, sizeof info) > 0;) {
    if (info.ssi_signo != SIGCHLD) pass_on(info);
  }
  tell_of_stops(workers_, agent_, monotonic_us());
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
  if (keeper_.state().looks() || workers_.any_kept()) look_at_leftovers();
}

// Under torchrun a worker's parent is the launcher, so "kill $PPID" in a worker stops the job. Here the parent is the guardian,
// which passes the signal on. A sender that has already ended may be a worker's `kill` command, or a process outside of the
// job. In the second case its SIGINT may have reached the agent too, and a second SIGINT there would kill the workers. So the
// signal of such a sender counts as SIGTERM. The guardian has its own session, so signals from the terminal's keys do not reach
// it.
void Guardian::pass_on(const signalfd_siginfo& info) {
  const auto sender = static_cast<pid_t>(info.ssi_pid);
  const bool gone = sender > 0 && ::kill(sender, 0) != 0 && errno == ESRCH;
  if (!gone && !is_below_this_process(sender)) return;
  const int number = gone ? SIGTERM : static_cast<int>(info.ssi_signo);
  agent_.tell({.kind = Notice::Kind::kSignalled, .worker = -1, .signal = number, .time_ns = realtime_ns()});
}

void Guardian::read_spawn_errors() {
  SpawnError error;
  while (::read(error_pipe_[0], &error, sizeof error) == static_cast<ssize_t>(sizeof error))
    spawn_errors_[error.worker] = error;
}

// Watches the socket for free space while a notice waits to be sent.
void Guardian::flush() {
  if (agent_.agent_is_gone()) return;
  agent_.flush();
  if (writing_ == agent_.has_more_to_send()) return;
  writing_ = agent_.has_more_to_send();
  watch(agent_.descriptor(), writing_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

}  // namespace

void guardian_main(const GuardianSettings& settings) {
  ::setsid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // SIGCONT wakes the guardian if it is stopped when the agent dies. If the agent died before this call, the closed socket
  // shows it.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  // The name is not ddprun: "pkill -9 ddprun" must not kill the guardian, which ends the workers.
  ::prctl(PR_SET_NAME, "job-guardian");
  set_process_title("job-guardian of process " + std::to_string(::getppid()));
  std::optional<Guardian> guardian;
  try {
    guardian.emplace(settings);
    guardian->run();
  } catch (const std::exception&) {
    // Without its loop the guardian can only end its workers. The agent sees the closed socket and reports it.
  }
  // Ending the workers may take long if one cannot be killed. So the console is closed first, since its readers wait until it
  // is closed.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) ::close(fd);
  if (guardian) guardian->end_store();  // first, since an agent that is restarted immediately listens at that port
  if (guardian) guardian->cgroups().kill();
  kill_children_until_none_is_left();
  if (guardian) guardian->cgroups().remove();
  if (!(guardian && guardian->agent_said_farewell())) {
    if (guardian) say_last_word(guardian->last_word());
    complete_report(settings.report, guardian ? guardian->newest_report() : -1);
  }
  ::_exit(0);
}

}  // namespace ddprun::guardian
