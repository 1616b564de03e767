// Implementation of control_client.hpp. running_jobs() sends all status requests first and then waits for all answers together.
#include "launcher/query/local/control_client.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "common/system/write_all.hpp"
#include "launcher/query/local/control_folder.hpp"
#include "launcher/query/local/control_socket.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::chrono::seconds kAnswerWithin{2};
constexpr std::size_t kMaxReplyBytes = 16 << 20;

bool is_abstract(const fs::path& socket) {
  return socket.native().starts_with('@');
}

// Returns a socket that is connected to the agent, or -1 with errno set. If `flags` contains SOCK_NONBLOCK, the call fails with
// EAGAIN instead of waiting.
Descriptor connected_to(const fs::path& socket, std::chrono::seconds within, int flags = 0) {
  Descriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = socket.native();
  if (fd.get() >= 0 && name.size() >= sizeof address.sun_path) {
    errno = EINVAL;
    return Descriptor();
  }
  if (fd.get() < 0) return fd;
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  const bool abstract = is_abstract(socket);
  if (abstract) address.sun_path[0] = '\0';
  const std::size_t size = abstract ? offsetof(sockaddr_un, sun_path) + name.size() : sizeof address;
  const timeval most{.tv_sec = within.count(), .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)) == 0) return fd;
  const int error = errno;
  fd = Descriptor();
  errno = error;
  return fd;
}

// Returns the process at the other end of the socket, or nullopt if the kernel does not report it. The pid is 0 if the process
// is in a container whose processes are not visible here.
std::optional<ucred> peer_of(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? std::optional(peer) : std::nullopt;
}

// Reads and appends at most one chunk. Returns false if no more bytes will arrive.
bool add_piece(int fd, int flags, std::string& text) {
  char piece[16384];
  const ssize_t count = ::recv(fd, piece, sizeof piece, flags);
  if (count < 0 && (errno == EINTR || ((flags & MSG_DONTWAIT) != 0 && errno == EAGAIN))) return true;
  if (count <= 0 || text.size() >= kMaxReplyBytes) return false;
  text.append(piece, static_cast<std::size_t>(count));
  return true;
}

std::optional<std::string> without_newline(const std::string& text) {
  return text.ends_with('\n') ? std::optional(text.substr(0, text.size() - 1)) : std::nullopt;
}

std::optional<std::string> query_socket(int fd, const std::string& request) {
  if (fd < 0 || write_all(fd, request + "\n") != 0) return std::nullopt;
  std::string text;
  while (!text.ends_with('\n') && add_piece(fd, 0, text)) {
  }
  return without_newline(text);
}

// A status query that was sent to an agent.
struct StatusQuery {
  RunningJob job;
  Descriptor socket;  // closed when the answer is complete or can no longer arrive
  std::string text{};

  pollfd awaited() const { return {socket.get(), POLLIN, 0}; }
  void read() {
    if (!add_piece(socket.get(), MSG_DONTWAIT, text) || text.ends_with('\n')) socket = Descriptor();
  }
};

void query_folder(const fs::path& folder, std::vector<StatusQuery>& queries) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path& file = entry->path();
    const std::optional<pid_t> by_name = agent_of_socket(file);
    if (!by_name) continue;
    Descriptor socket = connected_to(file, kAnswerWithin, SOCK_NONBLOCK);
    // EAGAIN means that the agent's listen queue is full. The blocking call waits for a free place.
    if (socket.get() < 0 && errno == EAGAIN) socket = connected_to(file, kAnswerWithin);
    const int refusal = socket.get() < 0 ? errno : 0;
    if (refusal == ECONNREFUSED) {
      ::unlink(file.c_str());
      continue;
    }
    if (refusal == ENOENT) continue;  // the agent has just ended
    const auto peer = peer_of(socket.get());
    const pid_t agent = peer ? peer->pid : *by_name;
    if (agent == 0) continue;
    if (socket.get() >= 0 && write_all(socket.get(), std::string(kStatusRequest) + "\n") != 0) socket = Descriptor();
    queries.push_back({.job = {agent, file, {}}, .socket = std::move(socket)});
  }
}

// Queries, by their abstract names, the agents that were not found in a directory. Any user can bind such a name, so the kernel
// must confirm the user id at the other end.
void query_abstract_names(std::vector<StatusQuery>& queries) {
  for (const std::string& name : abstract_sockets()) {
    Descriptor socket = connected_to(name, kAnswerWithin, SOCK_NONBLOCK);
    const auto peer = peer_of(socket.get());
    if (!peer || peer->uid != ::geteuid()) continue;
    const pid_t agent = peer->pid;
    if (agent == 0 || std::ranges::any_of(queries, [&](const StatusQuery& one) { return one.job.agent == agent; })) continue;
    if (write_all(socket.get(), std::string(kStatusRequest) + "\n") != 0) socket = Descriptor();
    queries.push_back({.job = {agent, name, {}}, .socket = std::move(socket)});
  }
}

// Waits for all answers at the same time, so that several agents that do not answer cost only one timeout.
void await_answers(std::vector<StatusQuery>& queries) {
  using std::chrono::steady_clock;
  const auto until = steady_clock::now() + kAnswerWithin;
  for (;;) {
    std::vector<pollfd> ready;
    ready.reserve(queries.size());
    for (const StatusQuery& one : queries) ready.push_back(one.awaited());
    if (std::ranges::all_of(ready, [](const pollfd& one) { return one.fd < 0; })) return;
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(until - steady_clock::now()).count();
    if (rest <= 0) return;
    ::poll(ready.data(), ready.size(), static_cast<int>(rest));
    for (std::size_t i = 0; i < queries.size(); ++i) {
      if (ready[i].revents != 0) queries[i].read();
    }
  }
}

}  // namespace

json with_known_types(json status) {
  constexpr std::array kTexts{"title", "kind", "state", "run_dir", "logs", "report", "host", "node_address"};
  constexpr std::array kFlags{"several_nodes", "stops"};
  const auto drop_unless = [](json& object, const char* key, bool (json::*is)() const noexcept) {
    if (const auto found = object.find(key); found != object.end() && !((*found).*is)()) object.erase(found);
  };
  for (const char* key : kTexts) drop_unless(status, key, &json::is_string);
  for (const char* key : kFlags) drop_unless(status, key, &json::is_boolean);
  drop_unless(status, "workers", &json::is_array);
  if (const auto workers = status.find("workers"); workers != status.end()) {
    json kept = json::array();
    for (json& worker : *workers) {
      if (!worker.is_object()) continue;
      drop_unless(worker, "state", &json::is_string);
      for (const char* key : {"rank", "pid"}) drop_unless(worker, key, &json::is_number_integer);
      kept.push_back(std::move(worker));
    }
    *workers = std::move(kept);
  }
  return status;
}

std::vector<RunningJob> running_jobs() {
  std::vector<StatusQuery> queries;
  for (const fs::path& folder : control_folders()) {
    // Directories that do not exist have no sockets. A directory that another user created or can access is not trusted.
    if (is_private_control_folder(folder)) query_folder(folder, queries);
  }
  query_abstract_names(queries);
  await_answers(queries);
  std::vector<RunningJob> jobs;
  for (StatusQuery& one : queries) {
    const std::optional<std::string> answer = without_newline(one.text);
    nlohmann::json status = answer ? nlohmann::json::parse(*answer, nullptr, false) : nlohmann::json();
    if (status.is_object()) one.job.status = with_known_types(std::move(status));
    jobs.push_back(std::move(one.job));
  }
  std::sort(jobs.begin(), jobs.end(), [](const RunningJob& a, const RunningJob& b) { return a.agent < b.agent; });
  return jobs;
}

std::optional<std::string> query_job(const fs::path& socket, const std::string& request, std::chrono::seconds within) {
  return query_socket(connected_to(socket, within).get(), request);
}

PendingQuery::PendingQuery(const fs::path& socket, const std::string& request) : socket_(connected_to(socket, kAnswerWithin)) {
  if (socket_.get() >= 0 && write_all(socket_.get(), request + "\n") != 0) socket_ = Descriptor();
}

bool PendingQuery::read() {
  return socket_.get() < 0 || !add_piece(socket_.get(), MSG_DONTWAIT, text_) || text_.ends_with('\n');
}

std::optional<std::string> PendingQuery::answer() const {
  return without_newline(text_);
}

}  // namespace ddprun
