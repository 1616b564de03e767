// Implementation of guardian_link.hpp: forks the guardian, sends requests with sendmsg(), and receives notices in the
// io_context.
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
                      "; ddprun needs this system call to supervise its workers");
}

}  // namespace

GuardianProcess start_guardian(int lock_fd, const std::filesystem::path& report, const std::function<void()>& forget) {
  GuardianProcess process;
  rlimit open_files{};
  ::getrlimit(RLIMIT_NOFILE, &open_files);
  // This process needs three descriptors per worker, so it raises its own limit to the hard limit. Workers get the original
  // limit.
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

GuardianLink::GuardianLink(boost::asio::io_context& io, GuardianProcess process, Agent& agent)
    : socket_(io, process.socket), process_(std::move(process)), agent_(agent) {
  wait();
}

void GuardianLink::shut_down_cleanly() {
  if (!socket_.is_open()) return;
  boost::system::error_code ignored;
  try {
    send({.kind = guardian::Request::Kind::kCleanShutdown});
  } catch (const std::system_error&) {
    // If this message is not sent, the guardian tries to complete the report. This is harmless, since the report is already
    // complete.
  }
  socket_.close(ignored);
}

GuardianLink::~GuardianLink() {
  boost::system::error_code ignored;
  socket_.close(ignored);  // if kCleanShutdown was not sent, the guardian completes the report now
  if (abandoned_) return;
  while (::waitpid(process_.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  // If the guardian was killed, its children became children of this process, so they are killed here.
  guardian::kill_children_until_none_is_left(process_.older_children);
}

void GuardianLink::spawn(int worker, const SpawnRequest& request, const SpawnDescriptors& descriptors) {
  const guardian::Request spawn{.kind = guardian::Request::Kind::kSpawn,
                                .worker = worker,
                                .shares_input = request.shares_input ? 1 : 0,
                                .spare = request.spare ? 1 : 0};
  std::array<int, guardian::kMaxDescriptors> fds{descriptors.standard_output, descriptors.standard_error};
  std::size_t count = 2;
  if (descriptors.channel >= 0) fds[count++] = descriptors.channel;
  const std::string bytes = pack(request);
  if (bytes.size() <= guardian::kMaxPacketBytes) {
    send(spawn, std::span(fds).first(count), bytes);
  } else {
    const Descriptor memfd = memfd_of(bytes);
    fds[count++] = memfd.get();
    send(spawn, std::span(fds).first(count));
  }
  ++unanswered_spawns_;
}

void GuardianLink::activate(int spare, const std::vector<std::string>& environment) {
  guardian::Request request{.kind = guardian::Request::Kind::kActivate, .worker = spare};
  for (const std::string& variable : environment) {
    if (variable.starts_with("RANK=")) request.rank = std::atoi(variable.c_str() + std::strlen("RANK="));
    if (variable.starts_with("MASTER_PORT=")) request.store_port = std::atoi(variable.c_str() + std::strlen("MASTER_PORT="));
  }
  send(request);
  no_children_left_ = false;
}

void GuardianLink::signal(int worker, int signal, Purpose purpose) {
  send({.kind = guardian::Request::Kind::kSignal,
        .worker = worker,
        .signal = signal,
        .stops = purpose == Purpose::kStops ? 1 : 0});
}

void GuardianLink::note_channel_pid(int worker, pid_t pid) {
  send({.kind = guardian::Request::Kind::kChannelPid, .worker = worker, .pid = pid});
}

void GuardianLink::sweep(const guardian::SweepState::Order& order) {
  send({.kind = guardian::Request::Kind::kSweep,
        .how = order.how,
        .next_round = order.next_round ? 1 : 0,
        .timeout_ms = order.timeout.count()});
}

void GuardianLink::serve_store(const std::vector<Descriptor>& listeners, bool only_this_machine) {
  for (std::size_t i = 0; i < listeners.size(); ++i) {
    const int listener = listeners[i].get();
    send({.kind = guardian::Request::Kind::kStore,
          .only_this_machine = only_this_machine ? 1 : 0,
          .more_follow = i + 1 < listeners.size() ? 1 : 0},
         {&listener, 1});
  }
}

// Ends the store and waits for a confirmation. The guardian closes its end of a pipe after it has ended the store, and poll()
// reports the hangup.
bool GuardianLink::end_store() {
  constexpr int kTimeoutMs = 1000;  // shorter than the worker lease, since the agent blocks during this time
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    send({.kind = guardian::Request::Kind::kEndStore});
    return false;
  }
  const Descriptor confirmation(ends[0]);
  Descriptor guardians_end(ends[1]);
  send({.kind = guardian::Request::Kind::kEndStore}, {&ends[1], 1});
  guardians_end = Descriptor();
  pollfd done{confirmation.get(), POLLIN, 0};
  int count = 0;
  while ((count = ::poll(&done, 1, kTimeoutMs)) < 0 && errno == EINTR) {
  }
  return count > 0;
}

void GuardianLink::keep_report(std::string_view text) {
  const Descriptor memfd(::memfd_create("ddprun-report", MFD_CLOEXEC));
  const int fd = memfd.get();
  if (fd < 0 || write_all(fd, text) != 0 || !socket_.is_open()) return;
  try {
    send({.kind = guardian::Request::Kind::kReport}, {&fd, 1});
  } catch (const std::system_error&) {
    // The error is ignored, since the guardian needs the report only if this process is killed.
  }
}

void GuardianLink::set_deadline(std::optional<std::chrono::nanoseconds> since_boot) {
  const std::int64_t ns = since_boot ? since_boot->count() : 0;
  send({.kind = guardian::Request::Kind::kDeadline, .deadline_ns = ns});
}

void GuardianLink::set_death_notice(const guardian::DeathNotice& notice) {
  send({.kind = guardian::Request::Kind::kSetDeathNotice, .death_notice = notice});
}

// Blocks while the socket is full. This is safe, because the guardian always continues to read. If the guardian is dead, this
// function returns without an error, since on_guardian_death() reports that.
void GuardianLink::send(const guardian::Request& request, std::span<const int> fds, std::string_view text) {
  guardian::Request copy = request;
  copy.descriptors = static_cast<std::int32_t>(fds.size());
  std::array<iovec, 2> parts{{{&copy, sizeof copy}, {const_cast<char*>(text.data()), text.size()}}};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * guardian::kMaxDescriptors)> control{};
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = text.empty() ? 1 : 2;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    if (errno == EPIPE || errno == ECONNRESET) return;
    if (errno == EAGAIN) {  // Asio has made the socket non-blocking
      pollfd polled{socket_.native_handle(), POLLOUT, 0};
      ::poll(&polled, 1, -1);
      continue;
    }
    // The kernel limits the number of descriptors that were sent and not yet received. This number falls when the guardian
    // receives some of them.
    if (errno == ETOOMANYREFS) {
      ::sched_yield();
      continue;
    }
    throw std::system_error(errno, std::generic_category(), "sending a request to the guardian");
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
      agent_.on_guardian_death();
      return;
    }
    using Kind = guardian::Notice::Kind;
    if (notice.kind == Kind::kStarted || notice.kind == Kind::kNotStarted) --unanswered_spawns_;
    no_children_left_ = notice.no_children_left != 0;
    agent_.on_notice(notice);
  }
  wait();
}

}  // namespace ddprun
