// Implementation of leftover_look.hpp.
//
// Note: what counts as connected. A shell passes descriptor 3, the worker channel, to all processes that it starts, so a daemon
// of a start script holds it too. So only the process that has spoken on the channel counts, and any process with a connection
// to the store.
#include "launcher/leftovers/leftover_look.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <sstream>
#include <string_view>

#include "common/base/printable.hpp"
#include "launcher/leftovers/process_tree.hpp"
#include "launcher/machine/kernel_file.hpp"

namespace ddprun::guardian {
namespace {

constexpr std::size_t kMostProcesses = 64;  // of one leftover and its descendants
constexpr int kMostDescriptors = 4096;      // of one process
constexpr std::size_t kMostName = 160;

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

// The fields of /proc/PID/stat after the name; the first is the state. Empty if the process has ended.
std::vector<std::string> stat_of(pid_t pid) {
  const std::string text = read_kernel_file(proc(pid, "stat").c_str()).value_or("");
  const std::size_t name_end = text.rfind(')');
  std::vector<std::string> fields;
  if (name_end == std::string::npos) return fields;
  std::istringstream rest(text.substr(name_end + 1));
  for (std::string field; rest >> field;) fields.push_back(field);
  return fields;
}

std::int64_t number_at(const std::vector<std::string>& fields, std::size_t index) {
  return index < fields.size() ? std::strtoll(fields[index].c_str(), nullptr, 10) : 0;
}

std::chrono::milliseconds age_of(const std::vector<std::string>& fields) {
  constexpr std::size_t kStartTime = 19;  // field 22 of proc(5), in ticks since the machine started
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  const std::int64_t since_boot_ms = static_cast<std::int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
  const std::int64_t started_ms = number_at(fields, kStartTime) * 1000 / std::max(1L, ::sysconf(_SC_CLK_TCK));
  return std::chrono::milliseconds(std::max<std::int64_t>(0, since_boot_ms - started_ms));
}

struct Descriptors {
  std::set<std::string> sockets;  // inodes
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
  for (int count = 0; count < kMostDescriptors; ++count) {
    const dirent* const entry = ::readdir(entries);
    if (entry == nullptr) break;
    std::array<char, 256> target{};
    const ssize_t n = ::readlink((folder + "/" + entry->d_name).c_str(), target.data(), target.size());
    if (n <= 0) continue;
    const std::string_view path(target.data(), static_cast<std::size_t>(n));
    constexpr std::string_view kSocket = "socket:[";
    if (path.starts_with(kSocket)) found.sockets.emplace(path.substr(kSocket.size(), path.size() - kSocket.size() - 1));
    found.device = found.device || is_accelerator(path);
  }
  ::closedir(entries);
  return found;
}

bool any_of_them(const std::set<std::string>& mine, const std::vector<std::string>& inodes) {
  return std::any_of(inodes.begin(), inodes.end(), [&](const std::string& inode) { return mine.contains(inode); });
}

std::string rank_in(const std::vector<std::string>& environment) {
  for (const std::string& variable : environment) {
    if (variable.starts_with("RANK=")) return variable.substr(5);
  }
  return "";
}

// A line of /proc/PID/status has the signals as a hexadecimal mask; bit 0 is signal 1.
bool is_in_mask(const std::string& status, std::string_view key, int signal) {
  const std::size_t at = status.find(key);
  if (at == std::string::npos) return false;
  const std::uint64_t mask = std::strtoull(status.c_str() + at + key.size(), nullptr, 16);
  return ((mask >> (signal - 1)) & 1) != 0;
}

// Looks at the session first, which survives its leader. A daemon has another session, so only its environment shows its
// worker.
const WorkerMark* whose(pid_t pid, const std::vector<WorkerMark>& workers) {
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

// Returns the word of a command that names the program: a script after its interpreter, the module after -m, or the first word.
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
  // A shell does not identify the job's program, so "sh -c ..." and "bash run.sh" must match in all words.
  const std::string name = program.substr(program.rfind('/') + 1);
  for (const char* const shell : {"sh", "bash", "dash", "zsh", "ksh", "env"}) {
    if (name == shell) return false;
  }
  constexpr std::size_t kMostLooked = 6;  // an interpreter, its options and the script
  const std::size_t end = std::min(words.size(), kMostLooked);
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
    // A shell lets its background processes ignore SIGINT and SIGQUIT, so an ignored SIGINT or SIGQUIT proves nothing.
    if (signal != SIGINT && signal != SIGQUIT && is_in_mask(status, "SigIgn:", signal)) return true;
  }
  return false;
}

std::vector<std::string> tcp_inodes(const std::string& table, int port) {
  std::vector<std::string> inodes;
  std::istringstream lines(table);
  std::string line;
  std::getline(lines, line);  // the heading
  while (std::getline(lines, line)) {
    std::istringstream row(line);
    std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
    row >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
    if (inode.empty()) continue;
    const auto port_of = [](const std::string& address) {
      return std::strtol(address.c_str() + address.rfind(':') + 1, nullptr, 16);
    };
    const bool listens = state == "0A";
    const bool wanted = port == 0 ? listens : !listens && (port_of(local) == port || port_of(remote) == port);
    if (wanted) inodes.push_back(inode);
  }
  return inodes;
}

LeftoverLook look_at_leftover(pid_t pid, const std::vector<WorkerMark>& workers) {
  LeftoverLook look;
  const auto fields = stat_of(pid);
  if (fields.empty() || fields[0] == "Z") return look;
  const WorkerMark* const worker = whose(pid, workers);
  if (worker != nullptr) look.worker = worker->number;
  look.age = age_of(fields);
  const std::string tables = read_kernel_file(proc(pid, "net/tcp").c_str()).value_or("");
  const std::string tables6 = read_kernel_file(proc(pid, "net/tcp6").c_str()).value_or("");
  std::vector<std::string> of_store, listening = tcp_inodes(tables, 0);
  const int port = worker != nullptr ? worker->store_port : workers.empty() ? 0 : workers.front().store_port;
  if (port != 0) of_store = tcp_inodes(tables, port);
  for (std::string& inode : tcp_inodes(tables6, 0)) listening.push_back(std::move(inode));
  if (port != 0) {
    for (std::string& inode : tcp_inodes(tables6, port)) of_store.push_back(std::move(inode));
  }
  std::vector<pid_t> family{pid};
  for (const pid_t below : descendants_of(pid)) family.push_back(below);
  if (family.size() > kMostProcesses) family.resize(kMostProcesses);
  constexpr std::size_t kUserTime = 11;  // fields 14 and 15 of proc(5)
  for (const pid_t one : family) {
    const auto its_fields = stat_of(one);
    look.cpu_ticks += number_at(its_fields, kUserTime) + number_at(its_fields, kUserTime + 1);
    const std::string status = read_kernel_file(proc(one, "status").c_str()).value_or("");
    const bool in_group = worker != nullptr && (::getsid(one) == worker->pid || ::getpgid(one) == worker->pid);
    look.catches = look.catches || handles(status, SIGTERM);
    look.reached = look.reached || (in_group && was_reached(*worker, status));
    const Descriptors descriptors = descriptors_of(one);
    const auto words = words_of(one, "cmdline");
    const bool own_program =
        std::any_of(workers.begin(), workers.end(), [&](const WorkerMark& mark) { return runs_program(words, mark.command); });
    const bool speaks =
        std::any_of(workers.begin(), workers.end(), [&](const WorkerMark& mark) { return mark.speaker == one; });
    look.same_program = look.same_program || own_program;
    look.connected = look.connected || speaks || any_of_them(descriptors.sockets, of_store);
    look.holds = look.holds || descriptors.device || any_of_them(descriptors.sockets, listening);
  }
  return look;
}

std::string leftover_name(pid_t pid) {
  std::string name = std::to_string(pid);
  for (const std::string& word : words_of(pid, "cmdline")) name += " " + word;
  return printable(name.substr(0, kMostName));
}

}  // namespace ddprun::guardian
