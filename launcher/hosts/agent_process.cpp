#include "launcher/hosts/agent_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

namespace ddprun {
namespace {

struct Pipe {
  Descriptor read;
  Descriptor write;
};

[[noreturn]] void throw_error(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw_error("a pipe could not be created");
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

enum class Group { kOfParent, kOwn };

// Runs in the child, so it uses only functions that are safe after fork().
[[noreturn]] void become(const char* program, char* const* words, char* const* variables, const std::array<int, 3>& streams,
                         Group group, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(127);
  if (group == Group::kOwn) ::setpgid(0, 0);
  for (int target = 0; target < 3; ++target) ::dup2(streams[static_cast<std::size_t>(target)], target);
  for (int signal = 1; signal < NSIG; ++signal) ::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(program, words, variables);
  ::_exit(127);
}

AgentProcess start(const char* program, std::vector<std::string> words, char* const* variables, int input, Group group) {
  Pipe output = make_pipe(), errors = make_pipe();
  const std::vector<char*> argv = pointers_to(words);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw_error("a process could not be started");
  if (pid == 0) become(program, argv.data(), variables, {input, output.write.get(), errors.write.get()}, group, parent);
  AgentProcess process;
  process.pid = pid;
  process.output = std::move(output.read);
  process.errors = std::move(errors.read);
  do_not_block(process.output.get());
  do_not_block(process.errors.get());
  process.ended = Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (process.ended.get() >= 0) return process;
  const int error = errno;
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  errno = error;
  throw_error("a process could not be watched");
}

}  // namespace

void do_not_block(int fd) {
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
}

std::vector<std::string> own_variables() {
  std::vector<std::string> variables;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) variables.emplace_back(*variable);
  return variables;
}

AgentProcess start_agent_process(const std::vector<std::string>& words, std::vector<std::string> variables) {
  const Descriptor nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const std::vector<char*> pointers = pointers_to(variables);
  AgentProcess process = start("/proc/self/exe", words, pointers.data(), nothing.get(), Group::kOfParent);
  for (std::string& variable : variables) ::explicit_bzero(variable.data(), variable.size());
  return process;
}

PipedProcess start_piped_process(const std::filesystem::path& program, const std::vector<std::string>& words) {
  Pipe input = make_pipe();
  do_not_block(input.write.get());
  PipedProcess process{start(program.c_str(), words, environ, input.read.get(), Group::kOwn), std::move(input.write)};
  return process;
}

}  // namespace ddprun
