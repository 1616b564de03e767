// Implementation of leftover_probe.hpp.
//
// Note: which processes count as connected. A shell passes descriptor 3, the worker channel, to all processes that it starts.
// So a daemon of a start script also has this descriptor. An open descriptor is therefore not enough. A process counts as
// connected if it has sent a message on the channel, or if it has a connection to the store.
#include "launcher/leftovers/leftover_probe.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>

#include "common/base/printable.hpp"
#include "common/system/boot_time.hpp"
#include "launcher/leftovers/process_sockets.hpp"
#include "launcher/leftovers/process_tree.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun::guardian {
namespace {

// maximum number of processes that are examined for each leftover: the leftover itself and its descendants
constexpr std::size_t kMaxProcesses = 64;
constexpr int kMaxScannedDescriptors = 4096;  // maximum number of examined descriptors per process
constexpr std::size_t kMaxNameBytes = 160;

std::string proc(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

std::vector<std::string> words_of(pid_t pid, const char* file) {
  std::vector<std::string> words;
  const std::string text = read_kernel_file(proc(pid, file).c_str()).value_or("");
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\0', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::chrono::milliseconds age_of(const std::vector<std::string>& fields) {
  // Index in stat_of() of field 22 of proc(5): start time in ticks since the machine started.
  constexpr std::size_t kStartTime = 19;
  const std::chrono::milliseconds started(number_at(fields, kStartTime) * 1000 / std::max(1L, ::sysconf(_SC_CLK_TCK)));
  return std::max(std::chrono::milliseconds{}, std::chrono::floor<std::chrono::milliseconds>(time_since_boot()) - started);
}

struct Descriptors {
  std::vector<SocketDescriptor> sockets;
  bool device = false;
};

bool is_accelerator(std::string_view path) {
  for (const std::string_view prefix : {"/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/accel"}) {
    if (path.starts_with(prefix)) return true;
  }
  return false;
}

Descriptors descriptors_of(pid_t pid) {
  Descriptors found;
  const std::string folder = proc(pid, "fd");
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) return found;
  for (int count = 0; count < kMaxScannedDescriptors; ++count) {
    const dirent* const entry = ::readdir(entries);
    if (entry == nullptr) break;
    std::array<char, 256> target{};
    const ssize_t n = ::readlink((folder + "/" + entry->d_name).c_str(), target.data(), target.size());
    if (n <= 0) continue;
    const std::string_view path(target.data(), static_cast<std::size_t>(n));
    constexpr std::string_view kSocket = "socket:[";
    if (path.starts_with(kSocket)) {
      found.sockets.push_back({.number = std::atoi(entry->d_name),
                               .inode = std::string(path.substr(kSocket.size(), path.size() - kSocket.size() - 1))});
    }
    found.device = found.device || is_accelerator(path);
  }
  ::closedir(entries);
  return found;
}

std::string rank_in(const std::vector<std::string>& environment) {
  for (const std::string& variable : environment) {
    if (variable.starts_with("RANK=")) return variable.substr(5);
  }
  return "";
}

// Returns true if the set of signals in that line of /proc/PID/status contains the signal. The line has a hexadecimal mask, in
// which bit 0 is signal 1.
bool is_in_mask(const std::string& status, std::string_view key, int signal) {
  const std::size_t at = status.find(key);
  if (at == std::string::npos) return false;
  const std::uint64_t mask = std::strtoull(status.c_str() + at + key.size(), nullptr, 16);
  return ((mask >> (signal - 1)) & 1) != 0;
}

// Finds the worker that started the process. Session and process group are compared first, since child processes stay in them
// after the worker has ended. A daemon leaves both, so only its environment shows which worker started it.
const WorkerMark* owner_of(pid_t pid, const std::vector<WorkerMark>& workers) {
  const pid_t session = ::getsid(pid), group = ::getpgid(pid);
  for (const WorkerMark& worker : workers) {
    if (session == worker.pid || group == worker.pid) return &worker;
  }
  const std::string rank = rank_in(words_of(pid, "environ"));
  for (const WorkerMark& worker : workers) {
    if (!rank.empty() && worker.rank == rank) return &worker;
  }
  return workers.size() == 1 ? workers.data() : nullptr;
}

// Returns the word of a command that names the program: the script after an interpreter, the module after -m, or otherwise the
// first word.
std::string program_word(const std::vector<std::string>& command) {
  if (command.empty()) return "";
  const std::string_view first = command[0];
  const bool interpreter = first.substr(first.rfind('/') + 1).starts_with("python");
  if (!interpreter) return command[0];
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (command[i] == "-c") return "";
    if (command[i] == "-m") return i + 1 < command.size() ? command[i + 1] : "";
    if (command[i] == "-X" || command[i] == "-W") {
      ++i;
    } else if (!command[i].starts_with("-")) {
      return command[i];
    }
  }
  return "";
}

}  // namespace

WorkerMark mark_of(int number, const std::vector<char*>& command, const std::vector<char*>& environment) {
  WorkerMark mark{.number = number};
  for (const char* const word : command) {
    if (word != nullptr) mark.command.emplace_back(word);
  }
  for (const char* const variable : environment) {
    if (variable == nullptr) continue;
    const std::string_view text(variable);
    if (text.starts_with("RANK=")) mark.rank = text.substr(5);
    if (text.starts_with("MASTER_PORT=")) mark.store_port = std::atoi(variable + std::strlen("MASTER_PORT="));
  }
  return mark;
}

bool runs_program(const std::vector<std::string>& words, const std::vector<std::string>& command) {
  if (words.empty() || command.empty()) return false;
  if (words.size() >= command.size() && std::equal(command.rbegin(), command.rend(), words.rbegin())) return true;
  const std::string program = program_word(command);
  if (program.empty()) return false;
  // The name of a shell does not identify the job's program. So commands such as "sh -c ..." and "bash run.sh" must match in
  // all words.
  const std::string name = program.substr(program.rfind('/') + 1);
  for (const char* const shell : {"sh", "bash", "dash", "zsh", "ksh", "env"}) {
    if (name == shell) return false;
  }
  constexpr std::size_t kMaxWords = 6;  // enough for an interpreter, its options and the script
  const std::size_t end = std::min(words.size(), kMaxWords);
  return std::find(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(end), program) !=
         words.begin() + static_cast<std::ptrdiff_t>(end);
}

bool handles(const std::string& status, int signal) {
  return is_in_mask(status, "SigCgt:", signal) || is_in_mask(status, "SigBlk:", signal);
}

bool was_reached(const WorkerMark& worker, const std::string& status) {
  if (worker.ordered) return true;
  for (int signal = 1; signal <= 64; ++signal) {
    if (((worker.signals >> (signal - 1)) & 1) == 0) continue;
    if (handles(status, signal)) return true;
    // A shell starts its background processes with SIGINT and SIGQUIT ignored. So an ignored SIGINT or SIGQUIT proves nothing.
    if (signal != SIGINT && signal != SIGQUIT && is_in_mask(status, "SigIgn:", signal)) return true;
  }
  return false;
}

SweepState::Observation probe_leftover(pid_t pid, const std::vector<WorkerMark>& workers) {
  SweepState::Observation probe{.pid = pid};
  const auto fields = stat_of(pid);
  if (fields.empty() || fields[0] == "Z") return probe;
  const WorkerMark* const worker = owner_of(pid, workers);
  if (worker != nullptr) probe.worker = worker->number;
  probe.age = age_of(fields);
  probe.program = std::hash<std::string>()(read_kernel_file(proc(pid, "cmdline").c_str()).value_or(""));
  const int port = worker != nullptr ? worker->store_port : workers.empty() ? 0 : workers.front().store_port;
  std::vector<pid_t> family{pid};
  for (const pid_t below : descendants_of(pid)) family.push_back(below);
  if (family.size() > kMaxProcesses) family.resize(kMaxProcesses);
  constexpr std::size_t kUserTime = 11;  // index in stat_of() of field 14 (utime) of proc(5); field 15 is stime
  for (const pid_t one : family) {
    const auto its_fields = stat_of(one);
    probe.cpu_ticks += number_at(its_fields, kUserTime) + number_at(its_fields, kUserTime + 1);
    const std::string status = read_kernel_file(proc(one, "status").c_str()).value_or("");
    const bool in_group = worker != nullptr && (::getsid(one) == worker->pid || ::getpgid(one) == worker->pid);
    probe.handles_sigterm = probe.handles_sigterm || handles(status, SIGTERM);
    probe.reached = probe.reached || (in_group && was_reached(*worker, status));
    const Descriptors descriptors = descriptors_of(one);
    const TcpUse tcp = tcp_use(one, descriptors.sockets, port);
    const auto words = words_of(one, "cmdline");
    const bool runs_worker_program =
        std::any_of(workers.begin(), workers.end(), [&](const WorkerMark& mark) { return runs_program(words, mark.command); });
    const bool uses_channel =
        std::any_of(workers.begin(), workers.end(), [&](const WorkerMark& mark) { return mark.channel_pid == one; });
    probe.same_program = probe.same_program || runs_worker_program;
    probe.connected = probe.connected || uses_channel || tcp.uses_port;
    probe.holds = probe.holds || descriptors.device || tcp.listens;
  }
  return probe;
}

std::string leftover_name(pid_t pid) {
  std::string name = std::to_string(pid);
  for (const std::string& word : words_of(pid, "cmdline")) name += " " + word;
  return printable(name.substr(0, kMaxNameBytes));
}

}  // namespace ddprun::guardian
