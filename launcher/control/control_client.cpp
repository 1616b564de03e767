// Implementation of control_client.hpp.
#include "launcher/control/control_client.hpp"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/system/write_all.hpp"
#include "launcher/control/control_folder.hpp"
#include "launcher/control/control_socket.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kAnswerWithin{2};
constexpr std::size_t kLongestAnswer = 16 << 20;

class Connection {
 public:
  Connection(const fs::path& socket, std::chrono::seconds within) : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string& name = socket.native();
    if (fd_ < 0 || name.size() >= sizeof address.sun_path) return;
    std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
    const timeval most{.tv_sec = within.count(), .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof most);
    error_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  }
  ~Connection() {
    if (fd_ >= 0) ::close(fd_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  int error() const { return error_; }

  std::optional<std::string> ask(const std::string& request) const {
    if (error_ != 0 || write_all(fd_, request + "\n") != 0) return std::nullopt;
    std::string answer;
    char piece[4096];
    for (ssize_t count = 0; (count = ::read(fd_, piece, sizeof piece)) > 0 && answer.size() < kLongestAnswer;) {
      answer.append(piece, static_cast<std::size_t>(count));
      if (answer.ends_with('\n')) return answer.substr(0, answer.size() - 1);
    }
    return std::nullopt;
  }

 private:
  int fd_ = -1;
  int error_ = EINVAL;
};

}  // namespace

std::vector<RunningJob> running_jobs() {
  std::vector<RunningJob> jobs;
  std::error_code error;
  if (!is_own_control_folder(control_folder())) return jobs;  // nobody has one, or somebody else has put it there
  for (const auto& entry : fs::directory_iterator(control_folder(), error)) {
    const std::optional<pid_t> agent = agent_of_socket(entry.path());
    if (!agent) continue;
    const Connection connection(entry.path(), kAnswerWithin);
    if (connection.error() == ECONNREFUSED) {
      fs::remove(entry.path(), error);
      continue;
    }
    const std::optional<std::string> answer = connection.ask(kAskStatus);
    if (connection.error() == ENOENT) continue;  // it has just ended
    nlohmann::json status = answer ? nlohmann::json::parse(*answer, nullptr, false) : nlohmann::json();
    jobs.push_back({*agent, entry.path(), status.is_object() ? std::move(status) : nlohmann::json()});
  }
  std::sort(jobs.begin(), jobs.end(), [](const RunningJob& a, const RunningJob& b) { return a.agent < b.agent; });
  return jobs;
}

std::optional<std::string> ask_job(const fs::path& socket, const std::string& request, std::chrono::seconds within) {
  return Connection(socket, within).ask(request);
}

}  // namespace ddprun
