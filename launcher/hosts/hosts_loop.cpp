// Implementation of hosts_loop.hpp: an event loop over the ssh processes, the console and the signals of this process.
#include "launcher/hosts/hosts_loop.hpp"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/numbers.hpp"
#include "common/base/overloaded.hpp"
#include "common/base/printable.hpp"
#include "common/base/version.hpp"
#include "launcher/hosts/agent_process.hpp"
#include "launcher/hosts/host_messages.hpp"
#include "launcher/hosts/hosts_command.hpp"
#include "launcher/hosts/hosts_console.hpp"
#include "launcher/hosts/hosts_state.hpp"
#include "launcher/hosts/ssh_problem.hpp"
#include "launcher/hosts/write_queue.hpp"

namespace ddprun {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kPingInterval{5000};   // a supervisor counts a connection as lost after 30 s of silence
constexpr milliseconds kRetireTimeout{2000};  // time in which the last ssh processes must exit after the end of the job
constexpr std::size_t kMaxErrorText = 4096;

// Returns 8 random hexadecimal digits, which distinguish the jobs of one user.
std::string random_id() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::random_device random;
  std::string text;
  for (int i = 0; i < 8; ++i) text += kDigits[random() % kDigits.size()];
  return text;
}

// Returns the signals that stop the job, except signals that this process was started to ignore (nohup).
std::vector<int> signals_to_forward(const Settings& settings) {
  std::vector<int> signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  const std::string handled = settings.text("signals-to-handle");
  if (handled.find("USR1") != std::string::npos) signals.push_back(SIGUSR1);
  if (handled.find("USR2") != std::string::npos) signals.push_back(SIGUSR2);
  std::erase_if(signals, [](int signal) {
    struct sigaction now {};
    return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  });
  return signals;
}

struct SshConnection {
  PipedProcess ssh;
  int serial;  // number of this connection; a later connection may have the same memory address, but never the same number
  MessageReader reader{MessageReader::Start::kAfterGreeting};
  WriteQueue queue{};
  std::string errors{};   // the last bytes of ssh's stderr
  bool answered = false;  // the supervisor has answered, so pings are sent
};

class HostsRun {
 public:
  HostsRun(const Arguments& arguments, const std::vector<Host>& hosts, const HostsFacts& facts, std::string_view token)
      : arguments_(arguments),
        hosts_(hosts),
        facts_(facts),
        token_(token),
        state_({.names = names(), .lost_timeout = facts.lost_timeout}),
        console_(names(), arguments.settings.flag("json")),
        connections_(hosts_.size()),
        starts_(hosts_.size()) {}

  int run() {
    catch_signals();
    carry_out(state_.start(steady_clock::now()));
    while (!state_.finished()) wait(state_.deadline());
    for (std::size_t i = 0; i < hosts_.size(); ++i) retire(i, true);
    const auto end = steady_clock::now() + kRetireTimeout;
    while (!retired_.empty() && steady_clock::now() < end) wait(end);
    for (std::size_t i = 0; i < hosts_.size(); ++i) console_.end(i);
    console_.write_all_now();
    for (const PipedProcess& process : retired_) ::kill(process.pid, SIGTERM);
    if (!state_.problem().empty()) throw Error(static_cast<ExitCode>(state_.exit_code()), state_.problem());
    return state_.exit_code();
  }

 private:
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Host& host : hosts_) names.push_back(host.name);
    return names;
  }

  void catch_signals() {
    sigset_t caught;
    sigemptyset(&caught);
    for (const int signal : signals_to_forward(arguments_.settings)) sigaddset(&caught, signal);
    ::sigprocmask(SIG_BLOCK, &caught, nullptr);
    signals_ = Descriptor(::signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK));
    ::signal(SIGTSTP, SIG_IGN);  // a suspended process would send no pings, and the agents would end
  }

  void carry_out(const std::vector<HostsAction>& actions) {
    for (const HostsAction& action : actions) {
      std::visit(Overloaded{[&](const hosts_action::Close& one) { retire(one.host, true); },
                            [&](const hosts_action::Connect& one) { connect(one.host, one.attach); },
                            [&](const hosts_action::StartAgent& one) { start_agent(one.host); },
                            [&](const hosts_action::SendSignal& one) {
                              send(one.host, MessageKind::kSignal, std::to_string(one.signal));
                            },
                            [&](const hosts_action::Print& one) { console_.print(printable(one.text)); }},
                 action);
    }
  }

  void connect(std::size_t host, bool attach) {
    if (!attach) ++starts_[host];
    retire(host, true);
    const std::vector<std::string> words{std::string(kSuperviseCommand)};
    connections_[host] = std::make_unique<SshConnection>(
        SshConnection{.ssh = start_piped_process(facts_.ssh, ssh_words(hosts_[host].target, facts_.program, words)),
                      .serial = ++last_serial_});
    const OpenRequest request{.version = kVersion,
                              .mode = attach ? OpenRequest::Mode::kAttach : OpenRequest::Mode::kStart,
                              .id = id_ + "-" + std::to_string(host) + "-" + std::to_string(starts_[host]),
                              .folder = facts_.folder,
                              .interface = arguments_.settings.text("interface"),
                              .lost_timeout_ms = static_cast<int>(facts_.lost_timeout.count()),
                              .is_first = host == 0 && hosts_.size() > 1};
    send(host, MessageKind::kOpen, to_content(request));
  }

  void start_agent(std::size_t host) {
    const std::vector<std::string> environment = own_variables();
    RunRequest request{.token = std::string(token_),
                       .variables = forwarded_variables(environment),
                       .words = agent_words(arguments_, hosts_, host, {state_.address(), std::to_string(state_.port())})};
    request.words.insert(request.words.begin(), facts_.program);
    std::string content = to_content(request);
    send(host, MessageKind::kRun, content);
    ::explicit_bzero(content.data(), content.size());
    ::explicit_bzero(request.token.data(), request.token.size());
  }

  void send(std::size_t host, MessageKind kind, std::string_view content) {
    if (connections_[host]) connections_[host]->queue.push(encode(kind, content));
  }

  bool is_open(std::size_t host, int serial) const { return connections_[host] && connections_[host]->serial == serial; }

  // Closes the connection. Its ssh process is reaped later.
  void retire(std::size_t host, bool kill) {
    if (!connections_[host]) return;
    PipedProcess ssh = std::move(connections_[host]->ssh);
    connections_[host].reset();
    if (kill) ::kill(ssh.pid, SIGTERM);
    for (Descriptor* fd : {&ssh.input, &ssh.output, &ssh.errors}) *fd = Descriptor();
    retired_.push_back(std::move(ssh));
  }

  void wait(std::optional<steady_clock::time_point> deadline) {
    const bool reads = !console_.is_full();
    std::vector<pollfd> ready{
        {signals_.get(), POLLIN, 0}, {console_.output_fd(), POLLOUT, 0}, {console_.errors_fd(), POLLOUT, 0}};
    for (const auto& one : connections_) {
      ready.push_back({one && reads ? one->ssh.output.get() : -1, POLLIN, 0});
      ready.push_back({one ? one->ssh.errors.get() : -1, POLLIN, 0});
      ready.push_back({one && !one->queue.empty() ? one->ssh.input.get() : -1, POLLOUT, 0});
      ready.push_back({one ? one->ssh.ended.get() : -1, POLLIN, 0});
    }
    std::vector<int> serials;
    for (const auto& one : connections_) serials.push_back(one ? one->serial : 0);
    for (const PipedProcess& process : retired_) ready.push_back({process.ended.get(), POLLIN, 0});
    const auto until = std::min(deadline.value_or(next_ping_), next_ping_);
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now()).count();
    const int count = ::poll(ready.data(), ready.size(), static_cast<int>(std::max<std::int64_t>(0, left)));
    if (count < 0 && errno != EINTR) throw InternalError("poll: " + std::generic_category().message(errno));
    if (count < 0) std::ranges::for_each(ready, [](pollfd& one) { one.revents = 0; });
    if (ready[1].revents != 0) console_.write(HostsConsole::Stream::kOutput);
    if (ready[2].revents != 0) console_.write(HostsConsole::Stream::kErrors);
    reap_retired();
    for (std::size_t i = 0; i < hosts_.size(); ++i) {
      const pollfd* const of_host = &ready[3 + 4 * i];
      // An event may close the connection of any host. So each step checks whether the host still has the connection that was
      // polled.
      const auto is_ready = [&](std::size_t which) { return of_host[which].revents != 0 && is_open(i, serials[i]); };
      if (is_ready(1)) read_errors(*connections_[i]);
      if (is_ready(0)) read_output(i);
      if (is_ready(2)) write_to(i);
      if (is_ready(3)) end_of_ssh(i);
    }
    if (ready[0].revents != 0) forward_signals();
    on_time();
  }

  void on_time() {
    const auto now = steady_clock::now();
    if (now >= next_ping_) {
      next_ping_ = now + kPingInterval;
      for (std::size_t i = 0; i < hosts_.size(); ++i) {
        if (connections_[i] && connections_[i]->answered) send(i, MessageKind::kPing, "");
      }
    }
    carry_out(state_.on_time(now));
  }

  void handle(const HostsEvent& event) { carry_out(state_.on(event, steady_clock::now())); }

  void forward_signals() {
    signalfd_siginfo info{};
    while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
      handle(hosts_event::Signalled{static_cast<int>(info.ssi_signo)});
  }

  static void read_errors(SshConnection& connection) {
    std::array<char, 4096> bytes{};
    const ssize_t count = ::read(connection.ssh.errors.get(), bytes.data(), bytes.size());
    if (count == 0) connection.ssh.errors = Descriptor();
    if (count <= 0) return;
    connection.errors.append(bytes.data(), static_cast<std::size_t>(count));
    if (connection.errors.size() > kMaxErrorText) connection.errors.erase(0, connection.errors.size() - kMaxErrorText);
  }

  void write_to(std::size_t host) {
    SshConnection& connection = *connections_[host];
    // If ssh has closed its input, it is about to end, so the queued messages are dropped.
    if (!connection.queue.write_to(connection.ssh.input.get(), WriteQueue::kNoLimit)) connection.queue = WriteQueue();
  }

  // Reads the output of ssh and handles the messages in it. Returns false if no more bytes are available now, or if the
  // connection was closed.
  bool read_output(std::size_t host) {
    SshConnection& connection = *connections_[host];
    std::array<char, 65536> bytes{};
    const ssize_t count = ::read(connection.ssh.output.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) return true;
    if (count == 0) connection.ssh.output = Descriptor();
    if (count <= 0) return false;
    const int serial = connection.serial;
    connection.reader.feed({bytes.data(), static_cast<std::size_t>(count)});
    while (is_open(host, serial)) {
      const auto message = connection.reader.next();
      if (!message) break;
      take(host, *message);
    }
    if (!is_open(host, serial)) return false;
    if (!connection.reader.broken()) return true;
    retire(host, true);
    handle(hosts_event::Disconnected{
        .host = host,
        .why = "expected messages of ddprun, but got other bytes; check the startup files of the shell",
        .is_usage = true});
    return false;
  }

  void take(std::size_t host, const HostMessage& message) {
    const std::vector<std::string> fields = split_fields(message.content);
    switch (message.kind) {
      case MessageKind::kReady: {
        connections_[host]->answered = true;
        const auto port = fields.size() < 2 ? std::nullopt : exact_number<int>(fields[1]);
        return handle(hosts_event::Ready{.host = host, .address = fields.empty() ? "" : fields[0], .port = port.value_or(0)});
      }
      case MessageKind::kAttached:
        connections_[host]->answered = true;
        return handle(hosts_event::Attached{host});
      case MessageKind::kUnknown:
        return handle(hosts_event::Unknown{host});
      case MessageKind::kRefused:
        return handle(hosts_event::Refused{host, message.content});
      case MessageKind::kOutput:
        return console_.add(host, HostsConsole::Stream::kOutput, message.content);
      case MessageKind::kErrors:
        return console_.add(host, HostsConsole::Stream::kErrors, message.content);
      case MessageKind::kEnded:
        return take_end(host, fields);
      default:
        return;  // other messages are only sent to a supervisor
    }
  }

  void take_end(std::size_t host, const std::vector<std::string>& fields) {
    const auto number = fields.size() < 2 ? std::nullopt : exact_number<int>(fields[1]);
    console_.end(host);
    send(host, MessageKind::kQuit, "");
    write_to(host);
    retire(host, false);
    handle(hosts_event::AgentEnded{
        .host = host, .number = number.value_or(0), .by_signal = !fields.empty() && fields[0] == "signal"});
  }

  void end_of_ssh(std::size_t host) {
    SshConnection& connection = *connections_[host];
    const int serial = connection.serial;
    while (read_output(host)) {
    }
    if (!is_open(host, serial)) return;
    read_errors(connection);
    int status = 0;
    while (::waitpid(connection.ssh.pid, &status, 0) < 0 && errno == EINTR) {
    }
    const SshEnd end{.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
                     .greeted = connection.reader.greeted(),
                     .errors = connection.errors};
    SshProblem problem = ssh_problem(end, hosts_[host].target, facts_.program, kVersion);
    connections_[host].reset();
    handle(hosts_event::Disconnected{.host = host, .why = std::move(problem.text), .is_usage = problem.is_usage});
  }

  void reap_retired() {
    std::erase_if(retired_, [](const PipedProcess& process) {
      int status = 0;
      return ::waitpid(process.pid, &status, WNOHANG) != 0;
    });
  }

  const Arguments& arguments_;
  const std::vector<Host>& hosts_;
  const HostsFacts& facts_;
  const std::string_view token_;
  const std::string id_ = random_id();
  HostsState state_;
  HostsConsole console_;
  std::vector<std::unique_ptr<SshConnection>> connections_;  // one for each host; nullptr while there is none
  std::vector<int> starts_;                                  // number of times that each agent was started
  std::vector<PipedProcess> retired_;                        // ssh processes of closed connections
  int last_serial_ = 0;
  Descriptor signals_;
  steady_clock::time_point next_ping_ = steady_clock::now() + kPingInterval;
};

}  // namespace

int run_hosts_loop(const Arguments& arguments, const std::vector<Host>& hosts, const HostsFacts& facts,
                   std::string_view token) {
  return HostsRun(arguments, hosts, facts, token).run();
}

}  // namespace ddprun
