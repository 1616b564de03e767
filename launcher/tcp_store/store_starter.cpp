#include "launcher/tcp_store/store_starter.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "common/system/realtime.hpp"
#include "launcher/guardian/spawn.hpp"

namespace ddprun::guardian {

void StoreStarter::take_socket(const ReceivedRequest& received, int epoll) {
  epoll_ = epoll;
  // The descriptors up to kWorkerChannelFd are reserved for workers, so the guardian uses higher numbers.
  const int copy =
      received.descriptor_count < 1 ? -1 : ::fcntl(received.descriptors[0].get(), F_DUPFD_CLOEXEC, kWorkerChannelFd + 1);
  if (copy >= 0) sockets_.listeners.push_back(copy);  // if no descriptor is free, clients cannot connect to this address
  sockets_.only_this_machine = received.request.only_this_machine != 0;
  if (received.request.more_follow != 0) return;
  for (const int listener : sockets_.listeners) watch(listener);
}

bool StoreStarter::on_ready(const epoll_event& event) {
  const int fd = event.data.fd;
  if (std::ranges::find(sockets_.listeners, fd) != sockets_.listeners.end()) {
    if ((event.events & EPOLLHUP) != 0) {
      stop_watching(fd);  // the agent has closed its end of the socket, so no more clients arrive
    } else {
      start();
    }
    return true;
  }
  if (fd != notes_) return false;
  forward_notes();
  if ((event.events & EPOLLHUP) != 0) stop_watching(fd);
  return true;
}

// Forks the store's process and closes the guardian's copies of the sockets. If the guardian kept a copy and the store's
// process died, the kernel would still accept clients, which no process serves.
void StoreStarter::start() {
  int ends[2] = {-1, -1};
  int error = ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0 ? 0 : errno;
  if (error == 0) {
    script_store::StoreSockets sockets = sockets_;
    sockets.notes = ::fcntl(ends[1], F_DUPFD_CLOEXEC, kWorkerChannelFd + 1);
    notes_ = ::fcntl(ends[0], F_DUPFD_CLOEXEC, kWorkerChannelFd + 1);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) script_store::serve_scripts(sockets, parent);
    if (pid_ < 0) error = errno;
    for (const int fd : {ends[0], ends[1], sockets.notes}) {
      if (fd >= 0) ::close(fd);
    }
    if (notes_ >= 0) watch(notes_);
  }
  close_listeners();
  if (error != 0) notify("cannot be started: " + std::generic_category().message(error));
}

void StoreStarter::notify(const std::string& text) {
  Notice notice{.kind = Notice::Kind::kStoreMessage, .time_ns = realtime_ns()};
  text.copy(notice.text.data(), notice.text.size() - 1);
  agent_.notify(notice);
}

void StoreStarter::forward_notes() {
  std::array<char, 4096> bytes{};
  ssize_t n = 0;
  while (notes_ >= 0 && (n = ::read(notes_, bytes.data(), bytes.size())) > 0) {
    unfinished_.append(bytes.data(), static_cast<std::size_t>(n));
  }
  for (std::size_t end = 0; (end = unfinished_.find('\n')) != std::string::npos;) {
    notify(unfinished_.substr(0, end));
    unfinished_.erase(0, end + 1);
  }
}

// Handles the end of the store's process if it exited by itself or another program killed it. If the guardian ends the store,
// end() reaps the process.
void StoreStarter::reaped(const siginfo_t& info) {
  if (!is_running() || info.si_pid != pid_) return;
  forward_notes();
  pid_ = -1;
  notify("ended unexpectedly with " + std::string(info.si_code == CLD_EXITED ? "exit code " : "signal ") +
         std::to_string(info.si_status) + ": scripts that use it will fail");
}

void StoreStarter::end() {
  close_listeners();
  if (is_running()) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
  if (notes_ >= 0) {
    stop_watching(notes_);
    ::close(notes_);
  }
  notes_ = -1;
  unfinished_.clear();
}

std::vector<pid_t> StoreStarter::without(std::vector<pid_t> children) const {
  std::erase(children, pid_);
  return children;
}

void StoreStarter::close_listeners() {
  for (const int fd : sockets_.listeners) {
    stop_watching(fd);
    ::close(fd);
  }
  sockets_.listeners.clear();
}

void StoreStarter::watch(int fd) const {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
}

// Call this before close(). The store's process may have a copy of the descriptor, and epoll would then report events even
// after close().
void StoreStarter::stop_watching(int fd) const {
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

}  // namespace ddprun::guardian
