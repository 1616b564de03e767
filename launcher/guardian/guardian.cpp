// Implementation of guardian.hpp: one epoll loop over the agent's socket, SIGCHLD and the workers' pidfds.
//
// Note: the order of deaths. SIGCHLD merges and waitid() answers in the order of creation, but epoll hands out pidfds in the
// order in which they became readable. So workers are reaped by pidfd, and the first to die gets the earlier time; SIGCHLD is
// for orphans.
#include "launcher/guardian/guardian.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <system_error>

#include "common/system/realtime.hpp"
#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/guardian/guardian_report.hpp"
#include "launcher/guardian/guardian_sweep.hpp"
#include "launcher/guardian/memory_watch.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/guardian/worker_cgroups.hpp"
#include "launcher/machine/cgroup_folders.hpp"

namespace ddprun::guardian {
namespace {

// How long after the start of a round its workers get cgroups (worker_cgroups.hpp has the reason).
constexpr std::int64_t kPlacingAfterNs = 200'000'000;

std::int64_t monotonic_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000;
}

// Workers' descriptors 0..3 are placed by dup2 in the child; nothing of the guardian may be in their way.
int move_up(int fd) {
  if (fd < 0 || fd > kWorkerChannelFd) return fd;
  const int moved = ::fcntl(fd, F_DUPFD_CLOEXEC, kWorkerChannelFd + 1);
  if (moved < 0) return fd;
  ::close(fd);
  return moved;
}

class Guardian {
 public:
  explicit Guardian(const GuardianSettings& settings);
  void run();
  bool agent_said_farewell() const { return farewell_; }
  WorkerCgroups& cgroups() { return cgroups_; }

 private:
  struct Worker {
    pid_t pid = 0;
    int pidfd = -1;
    std::int64_t started_us = 0;
    bool killed = false;   // the agent asked for SIGKILL
    bool overdue = false;  // killed at the deadline
  };

  void watch(int fd, std::uint32_t events) const;
  void receive_requests();
  void handle(const Request& request, const std::array<int, kMaxDescriptors>& fds, int fd_count);
  void spawn(const Request& request, const std::array<int, kMaxDescriptors>& fds, int fd_count);
  void signal(const Request& request);
  void place_workers();
  MemoryEvidence memory_of(int number, const Worker& worker, const siginfo_t& info, const rusage& usage) const;
  void set_deadline(std::int64_t deadline_ns);
  void end_of_grant();
  void begin_sweep(bool patient);
  void continue_sweep();
  void begin_next_round();
  void reap_worker(int worker);
  void reap_orphans();
  void read_spawn_errors();
  void tell(const Notice& notice);
  void flush();
  bool has_children() const;

  int socket_;
  rlimit open_files_;
  int epoll_ = -1;
  int signals_ = -1;
  int deadline_ = -1;     // a timer; made when first asked for
  bool overdue_ = false;  // it has fired: nothing may run
  int placing_ = -1;      // a timer
  bool placing_is_set_ = false;
  const CgroupFolders folders_ = cgroups_of_this_process();
  WorkerCgroups cgroups_{folders_};
  MemoryWatch memory_{folders_};
  int error_pipe_[2] = {-1, -1};
  std::map<int, Worker> workers_;  // alive or not reaped, by number
  std::map<int, int> worker_of_pidfd_;
  std::set<pid_t> groups_;                  // of all workers since the last sweep: they had their signal
  std::map<int, SpawnError> spawn_errors_;  // of workers that are not reaped yet
  std::deque<Notice> outbox_;
  enum class Sweeping { kNo, kPatiently, kKilling } sweeping_ = Sweeping::kNo;
  bool round_is_over_ = false;  // and nothing of it is left
  bool writing_ = false;        // waits for room in the socket
  bool agent_gone_ = false;
  bool farewell_ = false;
};

Guardian::Guardian(const GuardianSettings& settings) : socket_(move_up(settings.socket)), open_files_(settings.open_files) {
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  sigset_t child;
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  signals_ = move_up(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  epoll_ = move_up(::epoll_create1(EPOLL_CLOEXEC));
  if (signals_ < 0 || epoll_ < 0 || ::pipe2(error_pipe_, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "setting up the guardian");
  }
  for (int& fd : error_pipe_) fd = move_up(fd);
  placing_ = move_up(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  ::fcntl(socket_, F_SETFL, O_NONBLOCK);
  watch(socket_, EPOLLIN);
  watch(signals_, EPOLLIN);
  if (placing_ >= 0) watch(placing_, EPOLLIN);
  memory_.begin();
}

void Guardian::watch(int fd, std::uint32_t events) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0 && errno == EEXIST) ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd, &event);
}

void Guardian::run() {
  std::array<epoll_event, 64> events{};
  while (!agent_gone_) {
    const int count = ::epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return;  // cannot watch: end everything, the agent sees us go
    bool orphans = false;
    for (int i = 0; i < count; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == socket_) {
        if ((events[static_cast<std::size_t>(i)].events & EPOLLOUT) != 0) flush();
        if ((events[static_cast<std::size_t>(i)].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) receive_requests();
      } else if (fd == signals_) {
        orphans = true;
      } else if (fd == deadline_) {
        end_of_grant();
      } else if (fd == placing_) {
        place_workers();
      } else if (const auto found = worker_of_pidfd_.find(fd); found != worker_of_pidfd_.end()) {
        reap_worker(found->second);
      }
    }
    if (orphans) reap_orphans();
    flush();
    if (round_is_over_) begin_next_round();
  }
}

void Guardian::receive_requests() {
  for (;;) {
    Request request;
    iovec part{&request, sizeof request};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxDescriptors)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
      agent_gone_ = true;
      return;
    }
    std::array<int, kMaxDescriptors> fds{-1, -1, -1, -1};
    int fd_count = 0;
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      fd_count = static_cast<int>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      std::memcpy(fds.data(), CMSG_DATA(header), static_cast<std::size_t>(fd_count) * sizeof(int));
    }
    handle(request, fds, fd_count);
    for (const int fd : fds) {
      if (fd >= 0) ::close(fd);
    }
  }
}

void Guardian::handle(const Request& request, const std::array<int, kMaxDescriptors>& fds, int fd_count) {
  switch (request.kind) {
    case Request::Kind::kSpawn:
      spawn(request, fds, fd_count);
      return;
    case Request::Kind::kSignal:
      signal(request);
      return;
    case Request::Kind::kFarewell:
      farewell_ = true;
      return;
    case Request::Kind::kDeadline:
      set_deadline(request.deadline_ns);
      return;
    case Request::Kind::kSweep:
      begin_sweep(request.patient != 0);
      return;
  }
}

void Guardian::spawn(const Request& request, const std::array<int, kMaxDescriptors>& fds, int fd_count) {
  if (round_is_over_) begin_next_round();
  Notice notice{.kind = Notice::Kind::kStarted, .worker = request.worker};
  if (fd_count < 3) {  // the kernel dropped descriptors: our table is full
    notice.kind = Notice::Kind::kNotStarted;
    notice.error = EMFILE;
    notice.time_ns = realtime_ns();
    tell(notice);
    return;
  }
  try {
    const SpawnDescriptors descriptors{fds[1], fds[2], fd_count > 3 ? fds[3] : -1};
    Worker worker;
    worker.started_us = monotonic_us();
    worker.pid = spawn_worker(request.worker, unpack(fds[0]), descriptors, error_pipe_[1], open_files_);
    notice.pid = worker.pid;
    notice.time_ns = realtime_ns();
    tell(notice);
    groups_.insert(worker.pid);
    worker.pidfd = static_cast<int>(::syscall(SYS_pidfd_open, worker.pid, 0));  // -1: SIGCHLD does
    workers_[request.worker] = worker;
    if (worker.pidfd >= 0) {
      worker_of_pidfd_[worker.pidfd] = request.worker;
      watch(worker.pidfd, EPOLLIN);
    }
    if (!placing_is_set_ && placing_ >= 0) {
      const itimerspec after{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_nsec = kPlacingAfterNs}};
      placing_is_set_ = ::timerfd_settime(placing_, 0, &after, nullptr) == 0;
    }
  } catch (const std::system_error& error) {
    notice.kind = Notice::Kind::kNotStarted;
    notice.error = error.code().value();
    notice.time_ns = realtime_ns();
    tell(notice);
  }
}

void Guardian::place_workers() {
  std::uint64_t ignored = 0;
  if (::read(placing_, &ignored, sizeof ignored) <= 0) return;
  placing_is_set_ = false;
  for (const auto& [number, worker] : workers_) {
    if (cgroups_.folder_of(number).empty() && !cgroups_.place(number, worker.pid)) return;
  }
}

// The worker is not reaped, so its number is its own. Before its setsid() it has no group yet.
void Guardian::signal(const Request& request) {
  const auto found = workers_.find(request.worker);
  if (found == workers_.end()) return;
  const pid_t pid = found->second.pid;
  if (request.signal == SIGKILL) found->second.killed = true;
  const auto send = [pid](int number) {
    if (::kill(-pid, number) != 0 && errno == ESRCH) ::kill(pid, number);
  };
  send(request.signal);
  // A stopped process could not follow.
  if (request.signal == SIGTERM || request.signal == SIGHUP) send(SIGCONT);
}

// A time that is over already fires at once.
void Guardian::set_deadline(std::int64_t deadline_ns) {
  overdue_ = false;
  if (deadline_ < 0) {
    if (deadline_ns == 0) return;
    deadline_ = move_up(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (deadline_ < 0) throw std::system_error(errno, std::generic_category(), "making the guardian's timer");
    watch(deadline_, EPOLLIN);
  }
  constexpr std::int64_t kSecond = 1'000'000'000;
  itimerspec when{};
  when.it_value.tv_sec = deadline_ns / kSecond;
  when.it_value.tv_nsec = deadline_ns % kSecond;
  ::timerfd_settime(deadline_, TFD_TIMER_ABSTIME, &when, nullptr);
}

// By now another agent may lead the job and start its next round: no worker of this one may be left beside it.
void Guardian::end_of_grant() {
  std::uint64_t ignored = 0;
  if (::read(deadline_, &ignored, sizeof ignored) <= 0) return;
  overdue_ = true;
  for (auto& [number, worker] : workers_) worker.overdue = true;
  for (const pid_t pid : children_of_this_process()) ::kill(pid, SIGKILL);
}

void Guardian::begin_sweep(bool patient) {
  sweeping_ = patient ? Sweeping::kPatiently : Sweeping::kKilling;
  if (!patient) cgroups_.kill();
  if (patient) {
    for (const pid_t pid : children_of_this_process()) {
      if (!groups_.contains(group_of(pid))) ::kill(pid, SIGTERM);
    }
  }
  continue_sweep();
}

void Guardian::continue_sweep() {
  if (has_children()) {
    if (sweeping_ == Sweeping::kKilling) {
      for (const pid_t pid : children_of_this_process()) ::kill(pid, SIGKILL);
    }
    return;  // the next SIGCHLD brings us back
  }
  sweeping_ = Sweeping::kNo;
  tell({.kind = Notice::Kind::kSwept, .time_ns = realtime_ns()});
  round_is_over_ = true;
}

// Beside what the agent does meanwhile; its next request is read after this.
void Guardian::begin_next_round() {
  round_is_over_ = false;
  groups_.clear();
  cgroups_.end_round();
  memory_.begin();
}

bool Guardian::has_children() const {
  siginfo_t info{};
  return !(::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD);
}

void Guardian::reap_worker(int number) {
  const auto found = workers_.find(number);
  if (found == workers_.end()) return;
  siginfo_t info{};
  rusage usage{};  // the library's waitid() does not hand it out
  if (::syscall(SYS_waitid, P_PID, found->second.pid, &info, WEXITED | WNOHANG, &usage) != 0 || info.si_pid == 0) return;
  read_spawn_errors();
  Notice notice{.kind = Notice::Kind::kExited, .worker = number, .pid = found->second.pid, .time_ns = realtime_ns()};
  if (info.si_code == CLD_EXITED) {
    notice.code = info.si_status;
  } else {
    notice.signal = info.si_status;
    notice.core_dumped = info.si_code == CLD_DUMPED ? 1 : 0;
  }
  notice.overdue = found->second.overdue && notice.signal == SIGKILL ? 1 : 0;
  if (info.si_status != 0 && !found->second.killed && notice.overdue == 0)
    notice.memory = memory_of(number, found->second, info, usage);
  cgroups_.forget(number);
  if (const auto error = spawn_errors_.find(number); error != spawn_errors_.end()) {
    notice.error = error->second.error;
    notice.stage = static_cast<std::int32_t>(error->second.stage);
    spawn_errors_.erase(error);
  }
  if (found->second.pidfd >= 0) {
    // By name: a child on its way through exec may still hold a copy, with which close() alone would leave it in the epoll set.
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, found->second.pidfd, nullptr);
    worker_of_pidfd_.erase(found->second.pidfd);
    ::close(found->second.pidfd);
  }
  workers_.erase(found);
  if (workers_.empty() && sweeping_ == Sweeping::kNo && !has_children()) {
    notice.nothing_is_left = 1;
    round_is_over_ = true;
  }
  tell(notice);
}

// The log is long: it is read only when the kernel has killed something, and for what no count has settled.
MemoryEvidence Guardian::memory_of(int number, const Worker& worker, const siginfo_t& info, const rusage& usage) const {
  MemoryEvidence evidence = memory_.take(cgroups_.folder_of(number), cgroups_.kills_before(number));
  evidence.worker_peak = static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
  const bool by_sigkill = info.si_code != CLD_EXITED && info.si_status == SIGKILL;
  const bool unsettled = evidence.machine_kills != 0 && evidence.worker_kills <= 0;
  if (by_sigkill && unsettled && kernel_log_names(worker.pid, worker.started_us)) evidence.in_kernel_log = 1;
  return evidence;
}

void Guardian::reap_orphans() {
  signalfd_siginfo ignored{};
  while (::read(signals_, &ignored, sizeof ignored) > 0) {
  }
  for (;;) {
    siginfo_t info{};
    if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) break;
    const auto worker =
        std::find_if(workers_.begin(), workers_.end(), [&](const auto& w) { return w.second.pid == info.si_pid; });
    if (worker != workers_.end()) {
      reap_worker(worker->first);
    } else {
      ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
    }
  }
  if (overdue_) {  // their children are ours now
    for (const pid_t pid : children_of_this_process()) ::kill(pid, SIGKILL);
  }
  if (sweeping_ != Sweeping::kNo) continue_sweep();
}

void Guardian::read_spawn_errors() {
  SpawnError error;
  while (::read(error_pipe_[0], &error, sizeof error) == static_cast<ssize_t>(sizeof error))
    spawn_errors_[error.worker] = error;
}

// Goes out when everything at hand is done: woken for each of the workers that it has asked for, the agent would take the CPUs
// that they start on.
void Guardian::tell(const Notice& notice) {
  outbox_.push_back(notice);
}

// Never blocks: a stopped agent must not stop us from reaping, nor a full socket both of us.
void Guardian::flush() {
  while (!outbox_.empty()) {
    const ssize_t n = ::send(socket_, &outbox_.front(), sizeof(Notice), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) break;  // full: EPOLLOUT; closed: EPOLLIN tells
    outbox_.pop_front();
  }
  if (writing_ == !outbox_.empty()) return;
  writing_ = !outbox_.empty();
  watch(socket_, writing_ ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

}  // namespace

void guardian_main(const GuardianSettings& settings) {
  ::setsid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // Somebody may have stopped us when the agent dies. One that died before this is a closed socket.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  ::prctl(PR_SET_NAME, "ddprun-guardian");
  std::optional<Guardian> guardian;
  try {
    guardian.emplace(settings);
    guardian->run();
  } catch (const std::exception&) {
    // Without its loop the guardian can only end what it has: the agent sees the closed socket and says so.
  }
  // It may last, when one of them cannot be killed: nobody is to wait for our end of the console meanwhile.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) ::close(fd);
  if (guardian) guardian->cgroups().kill();
  kill_children_until_none_is_left();
  if (guardian) guardian->cgroups().remove();
  if (!(guardian && guardian->agent_said_farewell()) && !settings.report.empty()) complete_report(settings.report);
  ::_exit(0);
}

}  // namespace ddprun::guardian
