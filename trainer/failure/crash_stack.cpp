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

constexpr int kMaxFrames = 64;
// The maximum number of stack frames to write. The failure report quotes only the last lines of a log, so the first lines of a
// longer stack would be missing.
constexpr std::size_t kMaxShown = 12;
constexpr std::size_t kHandlerStack = std::size_t{128} << 10;

// The data that the signal handler needs. It is prepared in advance, because a signal handler must not allocate memory.
struct Program {
  std::string path;
  std::string addr2line;  // path of the tool; empty if it was not found
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

// This is the callback of dl_iterate_phdr(), which reports the program itself first. It returns 1 to skip the shared libraries.
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

void write_stderr(const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

// Writes the frames of the program itself. `frames` contains return addresses. The byte before a return address belongs to the
// call instruction, so the address of this byte is passed to addr2line. Returns false if no frame is in the program itself, or
// if addr2line fails. The function is safe in a signal handler: glibc's posix_spawn() takes no lock and allocates no heap
// memory.
bool write_program_frames(const std::uintptr_t* frames, int count) {
  if (program.addr2line.empty()) return false;
  static char places[kMaxShown][32];
  static const char* arguments[kMaxShown + 4];
  std::size_t next = 0;
  std::size_t shown = 0;
  for (const char* argument : {program.addr2line.c_str(), "-Cfpe", program.path.c_str()}) arguments[next++] = argument;
  for (int i = 0; i < count && shown < kMaxShown; ++i) {
    if (frames[i] <= program.begin || frames[i] >= program.end) continue;
    std::snprintf(places[shown], sizeof places[shown], "0x%llx", static_cast<unsigned long long>(frames[i] - 1 - program.base));
    arguments[next++] = places[shown++];
  }
  arguments[next] = nullptr;
  if (shown == 0) return false;
  write_stderr("the program's functions on the call stack, innermost first:\n");
  pid_t child = 0;
  if (::posix_spawn(&child, program.addr2line.c_str(), &program.to_stderr, nullptr, const_cast<char**>(arguments), environ) !=
      0)
    return false;
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

void on_crash(int signal, siginfo_t* info, void*) {
  static void* frames[kMaxFrames];
  static std::uintptr_t addresses[kMaxFrames];
  static volatile sig_atomic_t crashed = 0;
  ::signal(signal, SIG_DFL);
  if (crashed == 0) {  // if several threads crash, only the first one writes its stack
    crashed = 1;
    char text[128];
    std::snprintf(text, sizeof text, "crash: signal %d, address %p\n", signal, signal == SIGABRT ? nullptr : info->si_addr);
    write_stderr(text);
    const int count = ::backtrace(frames, kMaxFrames);
    for (int i = 0; i < count; ++i) addresses[i] = reinterpret_cast<std::uintptr_t>(frames[i]);
    constexpr int kHandlerFrames = 1;
    if (!write_program_frames(addresses + kHandlerFrames, count - kHandlerFrames)) {
      ::backtrace_symbols_fd(frames + kHandlerFrames, count - kHandlerFrames, STDERR_FILENO);
    }
  }
  ::raise(signal);  // the signal is delivered when this handler returns
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
  ::backtrace(&frame, 1);  // the first call to backtrace() loads libgcc, which a signal handler must not do
  const stack_t stack{.ss_sp = program.stack.data(), .ss_flags = 0, .ss_size = program.stack.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_sigaction = on_crash;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

// Parses LibTorch's text for each frame, such as "frame #3: at::native::view(...) + 0x5a (0x7f12 in /path/libtorch_cpu.so)".
void write_stack_of(const std::exception_ptr& error) {
  std::string stack;
  try {
    std::rethrow_exception(error);
  } catch (const c10::Error& torch) {
    if (torch.backtrace()) stack = torch.backtrace()->get();
  } catch (...) {
    return;
  }
  std::array<std::uintptr_t, kMaxFrames> frames{};
  int count = 0;
  for (std::size_t at = stack.find(" (0x"); at != std::string::npos && count < kMaxFrames; at = stack.find(" (0x", at + 1)) {
    frames[static_cast<std::size_t>(count++)] = std::strtoull(stack.c_str() + at + 2, nullptr, 16);
  }
  std::fflush(stderr);
  write_program_frames(frames.data(), count);
}

}  // namespace ddprun::trainer
