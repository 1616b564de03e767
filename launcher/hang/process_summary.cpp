#include "launcher/hang/process_summary.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "launcher/leftovers/process_tree.hpp"

namespace ddprun {
namespace {

struct Call {
  long number;
  const char* name;
};

// System calls in which programs wait. Newer architectures lack some of them, so each system call is listed only on
// architectures where it has a number.
constexpr std::array kCalls{
#ifdef SYS_poll
    Call{SYS_poll, "poll"},
#endif
#ifdef SYS_select
    Call{SYS_select, "select"},
#endif
#ifdef SYS_pause
    Call{SYS_pause, "pause"},
#endif
#ifdef SYS_epoll_wait
    Call{SYS_epoll_wait, "epoll_wait"},
#endif
    Call{SYS_read, "read"},
    Call{SYS_write, "write"},
    Call{SYS_futex, "futex"},
    Call{SYS_ppoll, "ppoll"},
    Call{SYS_pselect6, "pselect6"},
    Call{SYS_epoll_pwait, "epoll_pwait"},
    Call{SYS_nanosleep, "nanosleep"},
    Call{SYS_clock_nanosleep, "clock_nanosleep"},
    Call{SYS_wait4, "wait4"},
    Call{SYS_waitid, "waitid"},
    Call{SYS_recvfrom, "recvfrom"},
    Call{SYS_recvmsg, "recvmsg"},
    Call{SYS_sendto, "sendto"},
    Call{SYS_sendmsg, "sendmsg"},
    Call{SYS_connect, "connect"},
    Call{SYS_accept, "accept"},
    Call{SYS_accept4, "accept4"},
    Call{SYS_ioctl, "ioctl"},
    Call{SYS_flock, "flock"},
    Call{SYS_fcntl, "fcntl"},
    Call{SYS_fsync, "fsync"},
    Call{SYS_openat, "openat"},
    Call{SYS_rt_sigsuspend, "rt_sigsuspend"},
    Call{SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    Call{SYS_sched_yield, "sched_yield"},
};

std::string proc_line(long pid, const char* file) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/" + file);
  std::string line;
  std::getline(in, line);
  return line;
}

const char* meaning_of(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "waiting in the kernel, cannot be interrupted";
    case 'T':
      return "stopped";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "ended";
    default:
      return "unknown";
  }
}

std::string waits_in(long pid) {
  const std::string where = proc_line(pid, "wchan");
  // text such as "202 0x7f..." or "running"; empty if reading is not permitted
  const std::string call = proc_line(pid, "syscall");
  std::string text;
  if (!where.empty() && where != "0") text = "; the main thread waits in " + where;
  if (call.starts_with("running")) return text + "; the main thread is running";
  if (call.empty() || call.front() < '0' || call.front() > '9') return text;
  const std::string name = system_call_name(std::strtol(call.c_str(), nullptr, 10));
  return text.empty() ? "; the main thread is in the system call " + name : text + " (system call " + name + ")";
}

}  // namespace

std::string system_call_name(long number) {
  for (const Call& call : kCalls)
    if (call.number == number) return call.name;
  return "number " + std::to_string(number);
}

std::string process_summary(long pid) {
  const std::vector<std::string> field = guardian::stat_of(static_cast<pid_t>(pid));
  // Field indexes in /proc/PID/stat, counted from the field after the name.
  constexpr std::size_t kUser = 11, kSystem = 12, kThreads = 17;
  if (field.size() <= kThreads) return {};
  const double ticks = std::strtod(field[kUser].c_str(), nullptr) + std::strtod(field[kSystem].c_str(), nullptr);
  char text[160];
  std::snprintf(text, sizeof text, "state %c (%s), %s thread%s, %.1f s of CPU time", field[0][0], meaning_of(field[0][0]),
                field[kThreads].c_str(), field[kThreads] == "1" ? "" : "s",
                ticks / static_cast<double>(::sysconf(_SC_CLK_TCK)));
  return text + waits_in(pid);
}

}  // namespace ddprun
