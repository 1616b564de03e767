// Implementation of guardian_link.hpp: the fork, requests by sendmsg, and notices through the io_context.
#include "launcher/guardian/guardian_link.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "common/base/error.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/start_program.hpp"
#include "common/system/write_all.hpp"
#include "launcher/guardian/guardian.hpp"
#include "launcher/leftovers/process_tree.hpp"

namespace ddprun {
namespace {

[[noreturn]] void fail(const char* what) {
  throw InternalError(std::string(what) + " failed: " + std::generic_category().message(errno) +
                      "; ddprun needs it to watch its workers");
}

}  // namespace

GuardianProcess start_guardian(int lock_fd, const std::filesystem::path& report, const std::function<void()>& forget) {
  GuardianProcess process;
  rlimit open_files{};
  ::getrlimit(RLIMIT_NOFILE, &open_files);
  // Each worker needs three descriptors here. So this process raises its limit to the hard limit. Workers keep their own limit.
  rlimit all{open_files.rlim_max, open_files.rlim_max};
  if (open_files.rlim_cur < open_files.rlim_max) ::setrlimit(RLIMIT_NOFILE, &all);

  const auto older = guardian::children_of_this_process();
  process.older_children = {older.begin(), older.end()};
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) fail("prctl(PR_SET_CHILD_SUBREAPER)");
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) fail("socketpair");
  process.pid = ::fork();
  if (process.pid < 0) fail("fork");
  if (process.pid == 0) {
    ::close(ends[0]);
    if (forget) forget();
    guardian::guardian_main({.socket = ends[1], .lock_fd = lock_fd, .report = report, .open_files = open_files});
  }
  note_own_child(process.pid);
  ::close(ends[1]);
  process.socket = ends[0];
  return process;
}

GuardianLink::GuardianLink(boost::asio::io_context& io, GuardianProcess process, OnNotice on_notice, OnDeath on_death)
    : socket_(io, process.socket),
      process_(std::move(process)),
      on_notice_(std::move(on_notice)),
      on_death_(std::move(on_death)) {
  wait();
}

void GuardianLink::say_farewell() {
  if (!socket_.is_open()) return;
  boost::system::error_code ignored;
  try {
    send({.kind = guardian::Request::Kind::kFarewell}, nullptr, 0);
  } catch (const std::system_error&) {
    // The guardian then completes a report that is already complete, which does no harm.
  }
  socket_.close(ignored);
}

GuardianLink::~GuardianLink() {
  boost::system::error_code ignored;
  socket_.close(ignored);  // without kFarewell the guardian completes the report
  if (abandoned_) return;
  while (::waitpid(process_.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  // There are children left only if the guardian itself was killed: then its orphans are children of this process.
  guardian::kill_children_until_none_is_left(process_.older_children);
}

void GuardianLink::spawn(int worker, const SpawnRequest& request, const SpawnDescriptors& descriptors) {
  const guardian::Request spawn{.kind = guardian::Request::Kind::kSpawn,
                                .worker = worker,
                                .shares_input = request.shares_input ? 1 : 0,
                                .spare = request.spare ? 1 : 0};
  std::array<int, guardian::kMaxDescriptors> fds{descriptors.standard_output, descriptors.standard_error};
  int count = 2;
  if (descriptors.channel >= 0) fds[static_cast<std::size_t>(count++)] = descriptors.channel;
  const std::string bytes = pack(request);
  if (bytes.size() <= guardian::kMostInMessage) {
    send(spawn, fds.data(), count, bytes);
  } else {
    const Descriptor memfd(memfd_of(bytes));
    fds[static_cast<std::size_t>(count++)] = memfd.get();
    send(spawn, fds.data(), count);
  }
  ++unanswered_spawns_;
}

void GuardianLink::employ(int spare, const std::vector<std::string>& environment) {
  guardian::Request request{.kind = guardian::Request::Kind::kEmploy, .worker = spare};
  for (const std::string& variable : environment) {
    if (variable.starts_with("RANK=")) request.rank = std::atoi(variable.c_str() + std::strlen("RANK="));
    if (variable.starts_with("MASTER_PORT=")) request.store_port = std::atoi(variable.c_str() + std::strlen("MASTER_PORT="));
  }
  send(request, nullptr, 0);
  nothing_is_left_ = false;
}

void GuardianLink::signal(int worker, int signal, Purpose purpose) {
  send({.kind = guardian::Request::Kind::kSignal,
        .worker = worker,
        .signal = signal,
        .stops = purpose == Purpose::kStops ? 1 : 0},
       nullptr, 0);
}

void GuardianLink::note_speaker(int worker, pid_t pid) {
  send({.kind = guardian::Request::Kind::kSpeaker, .worker = worker, .pid = pid}, nullptr, 0);
}

void GuardianLink::sweep(const guardian::SweepState::Order& order) {
  send({.kind = guardian::Request::Kind::kSweep,
        .how = order.how,
        .next_round = order.next_round ? 1 : 0,
        .timeout_ms = order.timeout.count()},
       nullptr, 0);
}

void GuardianLink::serve_store(const std::vector<int>& listeners, bool only_this_machine) {
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    send({.kind = guardian::Request::Kind::kStore,
          .only_this_machine = only_this_machine ? 1 : 0,
          .more_follow = i + 1 < listeners.size() ? 1 : 0},
         &listeners[i], 1);
  }
}

// The guardian closes the received pipe end when it has ended the store. poll() then reports a hangup at this end.
bool GuardianLink::end_store() {
  constexpr int kPatienceMs = 1000;  // less than a lease
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    send({.kind = guardian::Request::Kind::kEndStore}, nullptr, 0);
    return false;
  }
  try {
    send({.kind = guardian::Request::Kind::kEndStore}, &ends[1], 1);
  } catch (...) {
    for (const int end : ends) ::close(end);
    throw;
  }
  ::close(ends[1]);
  pollfd done{ends[0], POLLIN, 0};
  int count = 0;
  while ((count = ::poll(&done, 1, kPatienceMs)) < 0 && errno == EINTR) {
  }
  ::close(ends[0]);
  return count > 0;
}

// If the memfd cannot be made, the guardian completes the file on disk instead.
void GuardianLink::keep_report(std::string_view text) {
  const int memfd = ::memfd_create("ddprun-report", MFD_CLOEXEC);
  if (memfd < 0) return;
  const bool written = write_all(memfd, text) == 0;
  try {
    if (written && socket_.is_open()) send({.kind = guardian::Request::Kind::kReport}, &memfd, 1);
  } catch (const std::system_error&) {
    // The guardian needs it only when this process is killed.
  }
  ::close(memfd);
}

void GuardianLink::set_deadline(std::optional<std::chrono::nanoseconds> since_boot) {
  const std::int64_t ns = since_boot ? since_boot->count() : 0;
  send({.kind = guardian::Request::Kind::kDeadline, .deadline_ns = ns}, nullptr, 0);
}

void GuardianLink::entrust(const guardian::LastWord& word) {
  send({.kind = guardian::Request::Kind::kEntrust, .last_word = word}, nullptr, 0);
}

// Blocks while the socket is full; the guardian never stops reading. A dead guardian is not an error here, since on_death
// reports it.
void GuardianLink::send(const guardian::Request& request, const int* fds, int fd_count, std::string_view text) {
  guardian::Request copy = request;
  copy.descriptors = fd_count;
  std::array<iovec, 2> parts{{{&copy, sizeof copy}, {const_cast<char*>(text.data()), text.size()}}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * guardian::kMaxDescriptors)> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = text.empty() ? 1 : 2;
  if (fd_count > 0) {
    const auto bytes = sizeof(int) * static_cast<std::size_t>(fd_count);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(header), fds, bytes);
  }
  while (::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return;
    if (errno == EAGAIN) {  // Asio has made the socket non-blocking
      pollfd polled{socket_.native_handle(), POLLOUT, 0};
      ::poll(&polled, 1, -1);
      continue;
    }
    if (errno == ETOOMANYREFS) {  // too many descriptors are in flight until the guardian has received them
      ::sched_yield();
      continue;
    }
    throw std::system_error(errno, std::generic_category(), "asking the guardian");
  }
}

void GuardianLink::wait() {
  socket_.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (!error) receive();
  });
}

void GuardianLink::receive() {
  for (;;) {
    guardian::Notice notice;
    const ssize_t n = ::recv(socket_.native_handle(), &notice, sizeof notice, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n <= 0) {
      on_death_();
      return;
    }
    using Kind = guardian::Notice::Kind;
    if (notice.kind == Kind::kStarted || notice.kind == Kind::kNotStarted) --unanswered_spawns_;
    nothing_is_left_ = notice.nothing_is_left != 0;
    on_notice_(notice);
  }
  wait();
}

}  // namespace ddprun
