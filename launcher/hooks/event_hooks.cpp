#include "launcher/hooks/event_hooks.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/failure/cause.hpp"
#include "common/system/start_program.hpp"
#include "launcher/events/printf_text.hpp"
#include "launcher/leftovers/process_tree.hpp"
#include "launcher/workers/worker_environment.hpp"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMaxText = 4096;  // maximum length in bytes of a message in an environment variable

// Returns a text with the exit status of the worker and the worker's own message, at most kMaxText bytes.
std::string message_of(const Failure& failure) {
  std::string text = describe_failure(failure);
  if (text != failure.message && !failure.message.empty()) text += ": " + failure.message;
  return text.substr(0, kMaxText);
}

std::string seconds_text(milliseconds time) {
  return printed("%.3g s", std::chrono::duration<double>(time).count());
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

void kill_group(pid_t pid) {
  if (::kill(-pid, SIGKILL) != 0) ::kill(pid, SIGKILL);  // the process group may not exist yet
}

// Runs in the child that supervise_command() forks, and becomes the command's shell.
[[noreturn]] void become(char* const* arguments, char* const* environment) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int dev_null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (dev_null >= 0) ::dup2(dev_null, STDIN_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (const int ignored : {SIGPIPE, SIGXFSZ}) ::sigaction(ignored, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(arguments[0], arguments, environment);
  ::_exit(127);
}

[[noreturn]] void exit_like(int status) {
  if (!WIFSIGNALED(status)) ::_exit(WEXITSTATUS(status));
  ::prctl(PR_SET_DUMPABLE, 0);  // prevents a second core dump: the shell has already written its own, if any
  ::signal(WTERMSIG(status), SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::kill(::getpid(), WTERMSIG(status));
  ::_exit(128 + WTERMSIG(status));
}

// Runs in the process between the agent and the command's shell. As a subreaper this process adopts all processes that the
// shell leaves behind. When all of them have ended, it exits with the shell's status. When the agent has ended, it kills all of
// them, so that no command outlives a killed agent.
[[noreturn]] void supervise_command(pid_t agent, char* const* arguments, char* const* environment) {
  ::setsid();
  ::prctl(PR_SET_NAME, "event-command");  // "pkill -9 ddprun" must not kill this process
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  // Closes inherited copies of the agent's sockets. They would keep ports in use and connections open after the agent has
  // exited.
  if (::syscall(SYS_close_range, 3, ~0U, 0) != 0) {
    for (int fd = 3; fd < 65536; ++fd) ::close(fd);
  }
  const pid_t shell = ::getppid() == agent ? ::fork() : -1;
  if (shell < 0) ::_exit(127);
  if (shell == 0) become(arguments, environment);
  sigset_t awaited;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGCHLD);
  sigaddset(&awaited, SIGTERM);
  for (int status_of_shell = 0;;) {
    ::sigwaitinfo(&awaited, nullptr);
    int status = 0;
    pid_t ended = 0;
    while ((ended = ::waitpid(-1, &status, WNOHANG)) > 0) {
      if (ended == shell) status_of_shell = status;
    }
    if (ended < 0 && errno == ECHILD) exit_like(status_of_shell);
    if (::getppid() != agent) {
      guardian::kill_children_until_none_is_left();
      ::_exit(0);
    }
  }
}

}  // namespace

EventHooks::EventHooks(boost::asio::io_context& io, Settings settings, std::function<void(const std::string&)> notify)
    : io_(io),
      settings_(std::move(settings)),
      notify_(std::move(notify)),
      failure_{.option = "--on-failure", .command = settings_.on_failure, .limit = boost::asio::steady_timer(io)},
      checkpoint_{.option = "--on-checkpoint", .command = settings_.on_checkpoint, .limit = boost::asio::steady_timer(io)} {}

// Waits for the commands. The agent's event loop is no longer running, so this function calls poll(). It waits for the commands
// of both options together: a slow command of one option must not delay a queued command of the other.
void EventHooks::finish() {
  const auto until = steady_clock::now() + settings_.end_timeout;
  const std::array<Kind*, 2> kinds{&failure_, &checkpoint_};
  while (failure_.pid != 0 || checkpoint_.pid != 0) {
    std::array<pollfd, kinds.size()> ends{};
    for (std::size_t i = 0; i < kinds.size(); ++i)
      ends[i] = {kinds[i]->pid != 0 ? kinds[i]->end->native_handle() : -1, POLLIN, 0};
    const auto left = std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - steady_clock::now()));
    const int count = ::poll(ends.data(), ends.size(), static_cast<int>(left.count()));
    if (count < 0 && errno == EINTR) continue;
    for (std::size_t i = 0; i < kinds.size(); ++i) {
      if (kinds[i]->pid == 0 || (count > 0 && ends[i].revents == 0)) continue;
      if (count <= 0) {
        kinds[i]->next.reset();
        kill_group(kinds[i]->pid);
      }
      ended(*kinds[i]);
    }
  }
}

void EventHooks::on(const RunEvent& event) {
  if (const auto* failed = std::get_if<RoundFailed>(&event)) handle(*failed);
  if (const auto* reported = std::get_if<WorkerReported>(&event)) {
    if (const auto* published = std::get_if<channel::CheckpointPublished>(&reported->message))
      handle(*published, reported->rank);
  }
  if (!std::holds_alternative<RunEnded>(event)) return;
  for (const Kind* kind : {&failure_, &checkpoint_}) {
    if (kind->pid == 0) continue;
    notify_("waiting for " + kind->option + " (process " + std::to_string(kind->pid) + "), at most " +
            seconds_text(settings_.end_timeout));
  }
}

void EventHooks::handle(const RoundFailed& failed) {
  const Failure& first = failed.first;
  submit(failure_, {{"DDPRUN_EVENT", "failure"},
                    {"DDPRUN_EVENT_CAUSE", name_of(first.cause)},
                    {"DDPRUN_EVENT_RANK", std::to_string(first.rank)},
                    {"DDPRUN_EVENT_STEP", std::to_string(first.step)},
                    {"DDPRUN_EVENT_PATH", first.log_path},
                    {"DDPRUN_EVENT_HOST", first.host},
                    {"DDPRUN_EVENT_MESSAGE", message_of(first)},
                    {"DDPRUN_EVENT_DECISION", name_of(failed.decision)},
                    {"DDPRUN_EVENT_RUN_DIR", settings_.run_dir}});
}

void EventHooks::handle(const channel::CheckpointPublished& published, int rank) {
  const std::string name = std::to_string(published.step) + " " + published.path;
  if (name == std::exchange(newest_checkpoint_, name)) return;
  submit(checkpoint_, {{"DDPRUN_EVENT", "checkpoint"},
                       {"DDPRUN_EVENT_RANK", std::to_string(rank)},
                       {"DDPRUN_EVENT_STEP", std::to_string(published.step)},
                       {"DDPRUN_EVENT_PATH", published.path},
                       {"DDPRUN_EVENT_RUN_DIR", settings_.run_dir}});
}

void EventHooks::submit(Kind& kind, Variables variables) {
  if (kind.command.empty()) return;
  if (kind.pid == 0) {
    start(kind, variables);
  } else {
    kind.next = std::move(variables);
  }
}

void EventHooks::start(Kind& kind, const Variables& variables) {
  std::vector<std::string> environment;
  for (std::string& variable : environment_of_this_process()) {
    const bool ours = variable.starts_with("DDPRUN_EVENT");
    if (!ours && !is_never_inherited(variable)) environment.push_back(std::move(variable));
  }
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value.substr(0, value.find('\0')));
  std::vector<std::string> words{"/bin/sh", "-c", kind.command};
  const std::vector<char*> arguments = pointers_to(words), environment_pointers = pointers_to(environment);
  // The parent waits until the child has closed its copies of the parent's descriptors. The child's copies would keep the
  // socket open that reserves the master port, and the next round could not reserve this port.
  int closed[2] = {-1, -1};
  if (::pipe2(closed, O_CLOEXEC) != 0) return notify_(kind.option + " could not be started: " + std::strerror(errno));
  const pid_t agent = ::getpid();
  const pid_t pid = ::fork();
  const int fork_error = errno;
  if (pid == 0) supervise_command(agent, arguments.data(), environment_pointers.data());
  ::close(closed[1]);
  char none = 0;
  while (pid > 0 && ::read(closed[0], &none, 1) < 0 && errno == EINTR) {
  }
  ::close(closed[0]);
  if (pid < 0) return notify_(kind.option + " could not be started: " + std::strerror(fork_error));
  note_own_child(pid);
  const int end = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (end < 0) {
    const int error = errno;
    kill_group(pid);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    forget_own_child(pid);
    return notify_(kind.option + ": the command was killed directly after its start, since ddprun cannot wait for its end: " +
                   std::strerror(error));
  }
  kind.pid = pid;
  kind.end = std::make_unique<boost::asio::posix::stream_descriptor>(io_, end);
  watch(kind);
}

void EventHooks::watch(Kind& kind) {
  kind.end->async_wait(boost::asio::posix::stream_descriptor::wait_read, [this, &kind](const boost::system::error_code& error) {
    if (!error) ended(kind);
  });
  kind.limit.expires_after(settings_.command_timeout);
  kind.limit.async_wait([this, &kind](const boost::system::error_code& error) {
    if (error || kind.pid == 0) return;
    notify_(kind.option + " has run for " + seconds_text(settings_.command_timeout) + ": it is killed");
    kill_group(kind.pid);
  });
}

void EventHooks::ended(Kind& kind) {
  int status = 0;
  while (::waitpid(kind.pid, &status, 0) < 0 && errno == EINTR) {
  }
  forget_own_child(kind.pid);
  kind.pid = 0;
  kind.end.reset();
  kind.limit.cancel();
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    notify_(kind.option + " ended with exit code " + std::to_string(WEXITSTATUS(status)));
  if (WIFSIGNALED(status)) notify_(kind.option + " ended by signal " + std::to_string(WTERMSIG(status)));
  if (const auto next = std::exchange(kind.next, std::nullopt)) start(kind, *next);
}

}  // namespace ddprun
