// Implementation of agent_supervisor.hpp: an event loop over the connection, the agent's pipes, and the Unix socket through
// which a later connection takes over the agent.
//
// Note: bytes that were written to a connection before its loss may not have arrived. The next connection starts with the
// bytes that were not yet written, so the console may miss some lines. The agent's log files have them.
//
// Note: the process that sshd has started only waits, and its child is the supervisor. A later connection has such a process
// too. When the supervisor closes a connection, this process exits. sshd then ends the session, so the other side detects the
// end of the connection.
#include "launcher/hosts/agent_supervisor.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/exit_code.hpp"
#include "common/base/numbers.hpp"
#include "common/base/version.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/write_all.hpp"
#include "launcher/hosts/agent_process.hpp"
#include "launcher/hosts/attach_socket.hpp"
#include "launcher/hosts/host_messages.hpp"
#include "launcher/hosts/hosts_command.hpp"
#include "launcher/hosts/write_queue.hpp"
#include "launcher/machine/interface_addresses.hpp"
#include "launcher/machine/local_address.hpp"
#include "launcher/machine/ports.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int kMeetingPort = 29400;            // the default port at which nodes meet
constexpr milliseconds kSilence{30'000};       // the other side sends a message every 5 s
constexpr milliseconds kResultKept{30'000};    // time for which the result waits for a new connection
constexpr std::size_t kMaxUnsent = 256 << 10;  // limit while a connection exists: above it, the agent's pipes are not read
constexpr std::size_t kMaxKept = 64 << 10;     // limit while no connection exists: above it, the oldest output is dropped

// Waits for a message that arrives before the event loop runs. Returns nullopt if the input has ended, or if no bytes arrive
// for kSilence.
std::optional<HostMessage> wait_for_message(int fd, MessageReader& reader) {
  std::array<char, 16384> bytes{};
  for (;;) {
    if (auto message = reader.next()) return message;
    pollfd input{fd, POLLIN, 0};
    const int ready = ::poll(&input, 1, static_cast<int>(kSilence.count()));
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t count = ready > 0 ? ::read(fd, bytes.data(), bytes.size()) : 0;
    if (count <= 0 || reader.broken()) return std::nullopt;
    reader.feed({bytes.data(), static_cast<std::size_t>(count)});
  }
}

// Returns the address at which the other hosts reach this host. The user's machine has reached sshd at an address of this
// host, so this address is preferred. A loopback address is not used, since only this host can reach it.
std::string own_address(const std::string& interface) {
  if (!interface.empty()) return address_of_interface(interface);
  const char* const connection = std::getenv("SSH_CONNECTION");  // client address and port, server address and port
  std::string_view text = connection == nullptr ? "" : connection;
  for (int i = 0; i < 2; ++i) text.remove_prefix(std::min(text.size(), text.find(' ') + 1));
  const std::string address(text.substr(0, text.find(' ')));
  if (is_number(address) && !is_loopback_number(address)) return address;
  return first_external_address().value_or("127.0.0.1");
}

class AgentSupervisor {
 public:
  // `session` is a socket to the process that sshd has started. That process exits when this socket is closed.
  AgentSupervisor(OpenRequest request, MessageReader reader, Descriptor session)
      : request_(std::move(request)), reader_(std::move(reader)), attached_(std::move(session)) {
    const auto copy_of = [](int fd) { return Descriptor(::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1)); };
    use_connection(copy_of(STDIN_FILENO), copy_of(STDOUT_FILENO));
    const Descriptor nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing.get(), fd);
  }

  // Throws UsageError if no agent can be started here.
  void prepare() {
    std::error_code error;
    fs::current_path(request_.folder, error);
    if (error)
      throw UsageError("the folder " + request_.folder + " cannot be used: " + error.message() +
                       "; expected the same working directory on each host: create it there, or share it");
    attach_socket_.emplace(request_.id);
    catch_signals();
    std::string port;
    if (request_.is_first) {
      port_ = HeldPort::of(kMeetingPort, PortNeed::kIfFree);
      port = std::to_string(port_->port());
    }
    send(MessageKind::kReady, join_fields({request_.is_first ? own_address(request_.interface) : "", port}));
  }

  void refuse(const std::string& why) {
    send(MessageKind::kRefused, why);
    queue_.write_to(out_.get(), WriteQueue::kNoLimit);
  }

  void run() {
    while (!is_over()) wait();
  }

 private:
  bool has_connection() const { return in_.get() >= 0; }
  bool has_ended() const { return result_.has_value(); }

  // If no agent was started yet, the supervisor ends when its connection ends. Once an agent was started, the supervisor keeps
  // the agent's result. It ends when the result was delivered, or when it has waited long enough for a new connection.
  bool is_over() const {
    if (quits_) return true;
    if (!started_) return !has_connection();
    return has_ended() && !has_connection() && steady_clock::now() >= result_until();
  }
  steady_clock::time_point result_until() const {
    return std::max(lost_at_ + milliseconds(request_.lost_timeout_ms), ended_at_ + kResultKept);
  }

  void use_connection(Descriptor in, Descriptor out) {
    in_ = std::move(in);
    out_ = std::move(out);
    do_not_block(in_.get());
    do_not_block(out_.get());
    received_at_ = steady_clock::now();
  }

  void lose_connection() {
    if (!has_connection()) return;
    in_ = Descriptor();
    out_ = Descriptor();
    attached_ = Descriptor();
    queue_.restart_part();
    reader_ = MessageReader(MessageReader::Start::kAtFirstByte);
    lost_at_ = steady_clock::now();
  }

  void send(MessageKind kind, std::string_view content) {
    queue_.push(encode(kind, content));
    if (!has_connection()) dropped_ += queue_.drop_above(kMaxKept);
  }

  void catch_signals() {
    sigset_t caught;
    sigemptyset(&caught);
    for (const int signal : {SIGTERM, SIGINT, SIGQUIT, SIGHUP}) sigaddset(&caught, signal);
    ::sigprocmask(SIG_BLOCK, &caught, nullptr);
    signals_ = Descriptor(::signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  int timeout_ms() const {
    std::optional<steady_clock::time_point> next;
    if (has_connection()) next = received_at_ + kSilence;
    if (!has_connection() && has_ended()) {
      next = result_until();
    } else if (!has_connection() && started_ && !terminated_) {
      next = lost_at_ + milliseconds(request_.lost_timeout_ms);
    }
    if (!next) return -1;
    return static_cast<int>(std::max<std::int64_t>(0, std::chrono::ceil<milliseconds>(*next - steady_clock::now()).count()));
  }

  void wait() {
    const bool reads_agent = !has_connection() || queue_.bytes() < kMaxUnsent;
    std::array<pollfd, 8> ready{{{in_.get(), POLLIN, 0},
                                 {queue_.empty() ? -1 : out_.get(), POLLOUT, 0},
                                 {attach_socket_->listener(), POLLIN, 0},
                                 {attach_socket_->arriving(), POLLIN, 0},
                                 {reads_agent ? agent_.output.get() : -1, POLLIN, 0},
                                 {reads_agent ? agent_.errors.get() : -1, POLLIN, 0},
                                 {has_ended() ? -1 : agent_.ended.get(), POLLIN, 0},
                                 {signals_.get(), POLLIN, 0}}};
    if (::poll(ready.data(), ready.size(), timeout_ms()) < 0 && errno != EINTR)
      throw InternalError("poll: " + std::generic_category().message(errno));
    if (ready[0].revents != 0) read_connection();
    if (ready[1].revents != 0 && has_connection() && !queue_.write_to(out_.get(), WriteQueue::kNoLimit)) lose_connection();
    if (ready[2].revents != 0) attach_socket_->accept();
    if (ready[3].revents != 0) take_over();
    if (ready[4].revents != 0) forward(agent_.output, MessageKind::kOutput);
    if (ready[5].revents != 0) forward(agent_.errors, MessageKind::kErrors);
    if (ready[6].revents != 0) reap();
    if (ready[7].revents != 0) forward_signals();
    on_time();
  }

  void on_time() {
    const auto now = steady_clock::now();
    if (has_connection() && now >= received_at_ + kSilence) lose_connection();
    if (has_connection() || !started_ || terminated_ || now < lost_at_ + milliseconds(request_.lost_timeout_ms)) return;
    terminated_ = true;
    signal_agent(SIGTERM);
  }

  void read_connection() {
    std::array<char, 16384> bytes{};
    const ssize_t count = ::read(in_.get(), bytes.data(), bytes.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (count <= 0) return lose_connection();
    received_at_ = steady_clock::now();
    reader_.feed({bytes.data(), static_cast<std::size_t>(count)});
    ::explicit_bzero(bytes.data(), bytes.size());
    take_messages();
  }

  void take_messages() {
    while (auto message = reader_.next()) {
      if (message->kind == MessageKind::kRun && !started_) start_agent(*message);
      if (message->kind == MessageKind::kQuit) quits_ = true;
      const auto signal = message->kind == MessageKind::kSignal ? exact_number<int>(message->content) : std::nullopt;
      if (signal) signal_agent(*signal);
    }
    if (reader_.broken()) lose_connection();
  }

  void start_agent(HostMessage& message) {
    std::optional<RunRequest> request = parse_run_request(message.content);
    ::explicit_bzero(message.content.data(), message.content.size());
    if (!request || request->words.empty()) return lose_connection();
    std::vector<std::string> variables = agent_variables(own_variables(), request->variables);
    if (!request->token.empty()) variables.push_back("DDPRUN_TOKEN=" + request->token);
    ::explicit_bzero(request->token.data(), request->token.size());
    port_.reset();
    try {
      agent_ = start_agent_process(request->words, std::move(variables));
      started_ = true;
    } catch (const std::system_error& error) {
      refuse(std::string("the agent could not be started: ") + error.what());
    }
  }

  void signal_agent(int signal) const {
    if (started_ && !has_ended()) ::kill(agent_.pid, signal);
  }

  void forward_signals() const {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      // sshd may send SIGHUP when the connection breaks. The agent then continues.
      if (info.ssi_signo != SIGHUP) signal_agent(static_cast<int>(info.ssi_signo));
    }
  }

  // Reads bytes from a pipe of the agent and sends them as a message. Returns false if no more bytes are available now.
  bool forward(Descriptor& from, MessageKind kind) {
    std::array<char, 32768> bytes{};
    const ssize_t count = from.get() < 0 ? 0 : ::read(from.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) return true;
    if (count > 0) send(kind, {bytes.data(), static_cast<std::size_t>(count)});
    if (count == 0) from = Descriptor();
    return count > 0;
  }

  // A process that the agent has left behind may keep the pipes open. So only the bytes that are available now are read.
  void reap() {
    int status = 0;
    while (::waitpid(agent_.pid, &status, 0) < 0 && errno == EINTR) {
    }
    while (forward(agent_.output, MessageKind::kOutput)) {
    }
    while (forward(agent_.errors, MessageKind::kErrors)) {
    }
    agent_.output = Descriptor();
    agent_.errors = Descriptor();
    ended_at_ = steady_clock::now();
    const bool by_signal = WIFSIGNALED(status);
    result_ = join_fields({by_signal ? "signal" : "code", std::to_string(by_signal ? WTERMSIG(status) : WEXITSTATUS(status))});
    send(MessageKind::kEnded, *result_);
  }

  // A new connection replaces the present one, which may be broken although no error was reported.
  void take_over() {
    auto connection = attach_socket_->receive();
    if (!connection) return;
    lose_connection();
    use_connection(std::move(connection->in), std::move(connection->out));
    attached_ = std::move(connection->process);
    WriteQueue kept = std::exchange(queue_, WriteQueue());
    send(MessageKind::kAttached, "");
    if (const std::size_t dropped = std::exchange(dropped_, 0); dropped > 0)
      send(MessageKind::kErrors,
           "ddprun: " + std::to_string(dropped) +
               " bytes of output were dropped while the connection was lost; the log files contain them\n");
    queue_.append(std::move(kept));
  }

  OpenRequest request_;
  MessageReader reader_;
  Descriptor attached_;  // socket to the process that sshd has started for this connection
  std::optional<AttachSocket> attach_socket_;
  Descriptor in_;  // the connection; -1 while there is none
  Descriptor out_;
  Descriptor signals_;
  std::optional<HeldPort> port_;  // the port that is reserved until the agent uses it
  WriteQueue queue_;
  std::size_t dropped_ = 0;
  AgentProcess agent_;
  std::optional<std::string> result_;
  steady_clock::time_point received_at_{};
  steady_clock::time_point lost_at_{};
  steady_clock::time_point ended_at_{};
  bool started_ = false;
  bool terminated_ = false;  // the agent got SIGTERM, since the connection was lost for too long
  bool quits_ = false;
};

// Waits until the other end of the socket is closed.
void wait_for_end_of_file(int socket) {
  char none = 0;
  while (::read(socket, &none, 1) < 0 && errno == EINTR) {
  }
}

// Runs in the child, which is the supervisor.
int supervise(const OpenRequest& request, MessageReader reader, Descriptor session) {
  ::setsid();
  AgentSupervisor supervisor(request, std::move(reader), std::move(session));
  try {
    supervisor.prepare();
  } catch (const Error& error) {
    supervisor.refuse(error.what());
    return static_cast<int>(ExitCode::kUsage);
  }
  supervisor.run();
  return 0;
}

}  // namespace

int supervise_agent_over_ssh() {
  write_all(STDOUT_FILENO, kHostGreeting);
  MessageReader reader(MessageReader::Start::kAtFirstByte);
  const auto message = wait_for_message(STDIN_FILENO, reader);
  const auto request = message && message->kind == MessageKind::kOpen ? parse_open_request(message->content) : std::nullopt;
  if (!request) return static_cast<int>(ExitCode::kUsage);
  if (request->version != kVersion) {
    write_all(STDOUT_FILENO, encode(MessageKind::kRefused, "its ddprun has version " + std::string(kVersion) +
                                                               ", and this machine has version " + request->version +
                                                               ": install the same version on both"));
    return static_cast<int>(ExitCode::kUsage);
  }
  if (request->mode == OpenRequest::Mode::kAttach) {
    if (!attach_to_supervisor(request->id)) write_all(STDOUT_FILENO, encode(MessageKind::kUnknown, ""));
    return 0;
  }
  std::array<int, 2> ends{};
  const bool has_socket = ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0;
  const pid_t child = has_socket ? ::fork() : -1;
  if (child < 0) {
    write_all(STDOUT_FILENO,
              encode(MessageKind::kRefused, "a process could not be started: " + std::generic_category().message(errno) +
                                                "; raise the limits of this user (ulimit -u, ulimit -n)"));
    return static_cast<int>(ExitCode::kUsage);
  }
  Descriptor session(ends[0]), other(ends[1]);
  if (child == 0) {
    other = Descriptor();
    return supervise(*request, std::move(reader), std::move(session));
  }
  session = Descriptor();
  wait_for_end_of_file(other.get());
  return 0;
}

}  // namespace ddprun
