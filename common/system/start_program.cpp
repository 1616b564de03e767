#include "common/system/start_program.hpp"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <csignal>
#include <mutex>
#include <set>

extern char** environ;

namespace ddprun {
namespace {

struct OwnChildren {
  std::mutex mutex;
  std::set<pid_t> pids;
};

OwnChildren& own_children() {
  static OwnChildren children;
  return children;
}

}  // namespace

void note_own_child(pid_t pid) {
  const std::lock_guard lock(own_children().mutex);
  own_children().pids.insert(pid);
}

void forget_own_child(pid_t pid) {
  const std::lock_guard lock(own_children().mutex);
  own_children().pids.erase(pid);
}

bool is_own_child(pid_t pid) {
  const std::lock_guard lock(own_children().mutex);
  return own_children().pids.contains(pid);
}

int start_program(const std::vector<std::string>& command, int standard_output, int standard_error, pid_t& pid) {
  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, standard_output, STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&files, standard_error, STDERR_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawn(&pid, arguments[0], &files, &attributes, arguments.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&files);
  if (error == 0) note_own_child(pid);
  return error;
}

}  // namespace ddprun
