// Implementation of process_tree.hpp: /proc/self/task/<tid>/children if the kernel has it, otherwise a scan of /proc.
#include "launcher/leftovers/process_tree.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/split.hpp"
#include "common/system/start_program.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun::guardian {
namespace {

std::optional<std::vector<pid_t>> children_from_list(const std::string& file) {
  const auto text = read_kernel_file(file.c_str());
  if (!text) return std::nullopt;
  std::vector<pid_t> children;
  const char* at = text->c_str();
  for (char* end = nullptr;; at = end) {
    const long pid = std::strtol(at, &end, 10);
    if (end == at) break;
    children.push_back(static_cast<pid_t>(pid));
  }
  return children;
}

pid_t parent_of(pid_t pid) {
  return static_cast<pid_t>(number_at(stat_of(pid), 1, -1));
}

std::vector<pid_t> children_from_scan() {
  std::vector<pid_t> children;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return children;
  while (const dirent* entry = ::readdir(proc)) {
    pid_t pid = 0;
    const char* end = entry->d_name + std::strlen(entry->d_name);
    const auto parsed = std::from_chars(entry->d_name, end, pid);
    if (parsed.ec == std::errc{} && parsed.ptr == end && parent_of(pid) == ::getpid()) children.push_back(pid);
  }
  ::closedir(proc);
  return children;
}

// Waits until at least one of these children has ended, and returns the ended ones. If pidfds or free descriptors are missing,
// returns all children, and the caller waits for them in turn.
std::vector<pid_t> wait_for_any(const std::vector<pid_t>& children) {
  std::vector<pollfd> handles;
  handles.reserve(children.size());
  for (const pid_t pid : children) {
    handles.push_back({static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0});
  }
  const bool all_known = std::all_of(handles.begin(), handles.end(), [](const pollfd& handle) { return handle.fd >= 0; });
  std::vector<pid_t> ended;
  if (!all_known) {
    ended = children;
  } else {
    while (::poll(handles.data(), handles.size(), -1) < 0 && errno == EINTR) {
    }
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (handles[i].revents != 0) ended.push_back(children[i]);
    }
  }
  for (const pollfd& handle : handles) {
    if (handle.fd >= 0) ::close(handle.fd);
  }
  return ended;
}

}  // namespace

bool has_children() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD;
}

std::vector<std::string> stat_of(pid_t pid) {
  const std::string text = read_kernel_file(("/proc/" + std::to_string(pid) + "/stat").c_str()).value_or("");
  // The text has the form: pid (name) state ... The name may contain any character, so the last ')' ends it.
  const std::size_t name_end = text.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= text.size()) return {};
  const std::vector<std::string_view> fields = split(std::string_view(text).substr(name_end + 2), ' ');
  return {fields.begin(), fields.end()};
}

std::int64_t number_at(const std::vector<std::string>& fields, std::size_t index, std::int64_t otherwise) {
  return index < fields.size() ? std::strtoll(fields[index].c_str(), nullptr, 10) : otherwise;
}

// Usually this process has no children, and one system call (has_children) detects that. Reading the list takes four calls, and
// the kernel creates a file for it.
std::vector<pid_t> children_of_this_process() {
  if (!has_children()) return {};
  if (auto children = children_from_list("/proc/thread-self/children")) return std::move(*children);
  return children_from_scan();
}

// The kernel has one list of children for each thread, so all threads are read.
std::vector<pid_t> descendants_of(pid_t pid) {
  std::vector<pid_t> found;
  for (std::size_t next = 0; next <= found.size(); ++next) {
    const std::string threads = "/proc/" + std::to_string(next == 0 ? pid : found[next - 1]) + "/task/";
    DIR* folder = ::opendir(threads.c_str());
    if (folder == nullptr) continue;
    while (const dirent* entry = ::readdir(folder)) {
      if (entry->d_name[0] == '.') continue;
      const auto children = children_from_list(threads + entry->d_name + "/children");
      if (children) found.insert(found.end(), children->begin(), children->end());
    }
    ::closedir(folder);
  }
  return found;
}

bool is_ending(pid_t pid) {
  constexpr std::int64_t kExiting = 4;  // PF_EXITING of linux/sched.h
  constexpr std::size_t kFlags = 6;     // index in stat_of() of field 9 of proc(5)
  return (number_at(stat_of(pid), kFlags, kExiting) & kExiting) != 0;
}

bool is_below_this_process(pid_t pid) {
  constexpr int kMaxSteps = 256;  // limits the walk, since parents may change during it
  for (int step = 0; step < kMaxSteps && pid > 1; ++step) {
    pid = parent_of(pid);
    if (pid == ::getpid()) return true;
  }
  return false;
}

void reap_orphans_of_others() {
  for (const pid_t pid : children_of_this_process()) {
    if (!is_own_child(pid)) ::waitpid(pid, nullptr, WNOHANG);
  }
}

// Reaps children in the order in which they end, because a child that is stuck in the kernel must not delay the others. When a
// child has ended, its own children become children of this process and are killed next.
void kill_children_until_none_is_left(const std::set<pid_t>& spared) {
  for (;;) {
    std::vector<pid_t> children = children_of_this_process();
    std::erase_if(children, [&](pid_t pid) { return spared.contains(pid); });
    if (children.empty()) return;
    for (const pid_t pid : children) ::kill(pid, SIGKILL);
    const std::vector<pid_t> ended = wait_for_any(children);
    for (const pid_t pid : ended) {
      while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
}

}  // namespace ddprun::guardian
