// Implementation of crash_stack.hpp.
#include "trainer/failure/crash_stack.hpp"

#include <c10/util/Exception.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

extern char** environ;

namespace ddprun::trainer {
namespace {

constexpr int kMostFrames = 64;
constexpr std::size_t kMostShown = 12;  // frames of the program itself: the report keeps only the last lines of a log
constexpr std::size_t kHandlerStack = std::size_t{128} << 10;

// Prepared in advance, since a signal handler may not allocate.
struct Program {
  std::string path;
  std::string addr2line;  // empty if not found
  std::uintptr_t base = 0;
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  posix_spawn_file_actions_t to_stderr{};
  alignas(16) std::array<char, kHandlerStack> stack{};
};
Program program;

std::string found_in_path(const char* name) {
  const char* const path = std::getenv("PATH");
  std::string rest = path == nullptr ? "/usr/bin:/bin" : path;
  for (std::size_t begin = 0; begin <= rest.size();) {
    const std::size_t end = std::min(rest.find(':', begin), rest.size());
    const std::string file = rest.substr(begin, end - begin) + "/" + name;
    if (::access(file.c_str(), X_OK) == 0) return file;
    begin = end + 1;
  }
  return "";
}

// The first entry is the program itself.
int note_program(dl_phdr_info* info, std::size_t, void*) {
  program.base = info->dlpi_addr;
  program.begin = UINTPTR_MAX;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD) continue;
    const std::uintptr_t begin = program.base + segment.p_vaddr;
    program.begin = std::min<std::uintptr_t>(program.begin, begin);
    program.end = std::max<std::uintptr_t>(program.end, begin + segment.p_memsz);
  }
  return 1;
}

void say(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// `frames` holds return addresses; the call is one byte before. Returns false if no frame is the program's, or if addr2line
// fails. Safe in a signal handler: glibc's posix_spawn() takes no lock and no memory of the heap.
bool write_own_frames(const std::uintptr_t* frames, int count) {
  if (program.addr2line.empty()) return false;
  static char places[kMostShown][32];
  static const char* arguments[kMostShown + 4];
  std::size_t next = 0;
  std::size_t shown = 0;
  for (const char* argument : {program.addr2line.c_str(), "-Cfpe", program.path.c_str()}) arguments[next++] = argument;
  for (int i = 0; i < count && shown < kMostShown; ++i) {
    if (frames[i] <= program.begin || frames[i] >= program.end) continue;
    std::snprintf(places[shown], sizeof places[shown], "0x%llx", static_cast<unsigned long long>(frames[i] - 1 - program.base));
    arguments[next++] = places[shown++];
  }
  arguments[next] = nullptr;
  if (shown == 0) return false;
  say("the program's own functions on the call stack, the innermost first:\n");
  pid_t child = 0;
  if (::posix_spawn(&child, program.addr2line.c_str(), &program.to_stderr, nullptr, const_cast<char**>(arguments), environ) !=
      0)
    return false;
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

void on_crash(int signal, siginfo_t* info, void*) {
  static void* frames[kMostFrames];
  static std::uintptr_t addresses[kMostFrames];
  static volatile sig_atomic_t crashed = 0;
  ::signal(signal, SIG_DFL);
  if (crashed == 0) {  // only the first of several threads
    crashed = 1;
    char text[128];
    std::snprintf(text, sizeof text, "crash: signal %d, address %p\n", signal, signal == SIGABRT ? nullptr : info->si_addr);
    say(text);
    const int count = ::backtrace(frames, kMostFrames);
    for (int i = 0; i < count; ++i) addresses[i] = reinterpret_cast<std::uintptr_t>(frames[i]);
    constexpr int kOfTheHandler = 1;
    if (!write_own_frames(addresses + kOfTheHandler, count - kOfTheHandler)) {
      ::backtrace_symbols_fd(frames + kOfTheHandler, count - kOfTheHandler, STDERR_FILENO);
    }
  }
  ::raise(signal);  // delivered when this handler returns
}

}  // namespace

void write_stack_on_crash() {
  std::error_code unknown;
  program.path = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
  program.addr2line = found_in_path("addr2line");
  ::dl_iterate_phdr(note_program, nullptr);
  ::posix_spawn_file_actions_init(&program.to_stderr);
  ::posix_spawn_file_actions_adddup2(&program.to_stderr, STDERR_FILENO, STDOUT_FILENO);
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // loads libgcc here, since the handler can't
  const stack_t stack{.ss_sp = program.stack.data(), .ss_flags = 0, .ss_size = program.stack.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

// LibTorch writes each frame as "frame #3: at::native::view(...) + 0x5a (0x7f12 in /path/libtorch_cpu.so)".
void write_stack_of(const std::exception_ptr& error) {
  std::string stack;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& torch) {
    if (torch.backtrace()) stack = torch.backtrace()->get();
  } catch (...) {
    return;
  }
  std::array<std::uintptr_t, kMostFrames> frames{};
  int count = 0;
  for (std::size_t at = stack.find(" (0x"); at != std::string::npos && count < kMostFrames; at = stack.find(" (0x", at + 1)) {
    frames[static_cast<std::size_t>(count++)] = std::strtoull(stack.c_str() + at + 2, nullptr, 16);
  }
  std::fflush(stderr);
  write_own_frames(frames.data(), count);
}

}  // namespace ddprun::trainer
