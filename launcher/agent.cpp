// Implementation of agent.hpp: the shell round AgentState. Descriptors, timers and the guardian become events; actions become
// calls. Nothing is decided here but how to do what the machine says.
#include "launcher/agent.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <deque>
#include <map>
#include <system_error>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/error.hpp"
#include "common/host_name.hpp"
#include "common/realtime.hpp"
#include "launcher/agent_state.hpp"
#include "launcher/argument_template.hpp"
#include "launcher/console_writer.hpp"
#include "launcher/error_file.hpp"
#include "launcher/file_timer_server.hpp"
#include "launcher/guardian_link.hpp"
#include "launcher/hang_inquiry.hpp"
#include "launcher/job_link.hpp"
#include "launcher/ports.hpp"
#include "launcher/run_directory_watch.hpp"
#include "launcher/standby_processes.hpp"
#include "launcher/store_server.hpp"
#include "launcher/stuck_workers.hpp"
#include "launcher/worker_channel.hpp"
#include "launcher/worker_ends.hpp"
#include "launcher/worker_environment.hpp"
#include "launcher/worker_output.hpp"
#include "launcher/worker_output_files.hpp"
#include "rendezvous/ranks.hpp"

namespace ddprun {
namespace {

using boost::asio::io_context;
using boost::asio::steady_timer;
using boost::asio::posix::stream_descriptor;
using std::chrono::milliseconds;

// How long a pipe may stay open after everything below the guardian is gone: someone outside holds it.
constexpr milliseconds kPipeGrace{200};

Instant now() {
  return {std::chrono::steady_clock::now(), realtime_ns()};
}

// Rounds are counted on over the invocations of a run directory: one more than the newest logs/round-NNN.
int first_round_in(const std::filesystem::path& log_root, LogLayout layout) {
  int next = 0;
  if (layout != LogLayout::kRounds) return next;  // a folder of its own for each run
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(log_root, error)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "round-";
    int round = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), round).ec == std::errc{}) {
      next = std::max(next, round + 1);
    }
  }
  return next;
}

// The signals this program handles, blocked and ready to be read from a descriptor; as they were before at the end. Workers
// inherit what the caller ignores but for these, as from torchrun. SIGPIPE is ignored meanwhile: a closed console is no reason
// to end a job. SIGCHLD must not be: the kernel would keep no exit codes.
class BlockedSignals {
 public:
  explicit BlockedSignals(const std::vector<int>& handled) {
    sigemptyset(&set_);
    std::vector<int> ours;
    for (const int signal : handled) {
      // Under nohup a lost terminal is not to end the job.
      struct sigaction current {};
      if (signal == SIGHUP && ::sigaction(SIGHUP, nullptr, &current) == 0 && current.sa_handler == SIG_IGN) continue;
      sigaddset(&set_, signal);
      ours.push_back(signal);
    }
    sigaddset(&set_, SIGUSR1);
    sigaddset(&set_, SIGUSR2);
    ::sigprocmask(SIG_BLOCK, &set_, &mask_before_);
    for (const int signal : ours) dispose(signal, SIG_DFL);
    dispose(SIGPIPE, SIG_IGN);
    dispose(SIGCHLD, SIG_DFL);
  }
  ~BlockedSignals() {
    for (auto each = before_.rbegin(); each != before_.rend(); ++each) ::sigaction(each->first, &each->second, nullptr);
    ::sigprocmask(SIG_SETMASK, &mask_before_, nullptr);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

  int descriptor() const {
    const int fd = ::signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) throw InternalError("signalfd failed: " + std::generic_category().message(errno));
    return fd;
  }

 private:
  void dispose(int signal, void (*disposition)(int)) {
    struct sigaction action {};
    action.sa_handler = disposition;
    struct sigaction before {};
    if (::sigaction(signal, &action, &before) == 0) before_.emplace_back(signal, before);  // not for KILL and STOP
  }

  sigset_t set_{};
  sigset_t mask_before_{};
  std::vector<std::pair<int, struct sigaction>> before_;
};

WorkerOutputSettings output_settings(const Plan& plan, const AgentFiles& files) {
  WorkerOutputSettings settings{.log_root = files.log_root, .layout = files.layout, .workers = plan.nproc_per_node};
  if (plan.kind != Plan::Kind::kTrain) {
    settings.script = plan.output;
    settings.kept = files.log_root.empty() ? KeptFiles::kNone : kept_files(plan);
  }
  return settings;
}

HangSettings hang_settings(const Plan& plan) {
  return {.limits = plan.hang,
          .channel = plan.kind == Plan::Kind::kTrain,
          .python = plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule};
}

class Agent {
 public:
  Agent(const Plan& plan, const AgentFiles& files, const BlockedSignals& signals, GuardianProcess guardian,
        const MakeObservers& make_observers, std::optional<NetworkStart> network);
  int run();
  // After run(): the guardian ends, and this object's end waits for it.
  void say_farewell() { guardian_.say_farewell(); }

 private:
  // events in
  void feed(const AgentEvent& event);
  void wait_for_signals();
  void on_signal(int signal);
  void on_notice(const guardian::Notice& notice);
  void on_guardian_death();
  void on_worker_end(int rank, const guardian::Notice& notice);
  void on_standby_notice(const guardian::Notice& notice);
  std::string why_not_started(const guardian::Notice& notice) const;
  void on_message(int number, const channel::FromWorker& message);
  void on_standby_message(int number, const channel::FromWorker& message);
  void on_worker_message(int rank, const channel::FromWorker& message);
  void on_overdue_timer(const TimerRequest& request);
  void look_for_stuck_workers();
  HangInquiry::Hooks hang_hooks();
  void watch_for_hangs();
  void wait_for_output(int rank, Stream stream);
  void listen(int rank, Stream stream);
  bool read_output(int rank, Stream stream);
  void drain_output(int rank);
  void end_output(int rank, Stream stream);
  void round_may_be_over();
  void end_round();
  void close_workers();

  // actions out
  void carry_out(const agent_action::StartRound& action);
  void carry_out(const agent_action::ContinueRound& action);
  void carry_out(const agent_action::StartWorker& action);
  void carry_out(const agent_action::TakeOver& action);
  void carry_out(const agent_action::StartStandby& action);
  void carry_out(const agent_action::DismissStandbys&) { standbys_.dismiss(guardian_); }
  void carry_out(const agent_action::Tell& action);
  void carry_out(const agent_action::SendSignal& action);
  void carry_out(const agent_action::Sweep& action);
  void carry_out(const agent_action::SetTimer& action);
  void carry_out(const agent_action::CancelTimer& action);
  void carry_out(agent_action::Emit& action);
  void carry_out(const agent_action::Finish& action);
  // Of a member only.
  void carry_out(const agent_action::ReportFailure& action) { job_->carry_out(action); }
  void carry_out(const agent_action::ReportRoundOver& action) { job_->carry_out(action); }
  void carry_out(const agent_action::ReportSignal& action) { job_->carry_out(action); }
  void carry_out(const agent_action::ReportSteps& action) { job_->carry_out(action); }

  void join_job(NetworkStart start);
  std::vector<RankAssignment> ranks_here() const;
  void take_master_port();
  int global_rank(int rank) const { return job_ ? job_->release().rank_offset + rank : rank; }
  void start_worker(const RankAssignment& ranks, int restart_count);
  void clear_place(int rank, int round, int restart_count);
  WorkerSettings worker_settings(const RankAssignment& ranks, int restart_count) const;
  std::optional<int> rank_of(int number) const;
  WorkerChannel* channel_of(int number) const;
  Ends output_of(int rank, Stream stream);
  void add_evidence(Failure& failure) const;
  void hand_on(const Failure& first) const;
  void publish(const RunEvent& event);
  steady_timer& timer(AgentTimer which) { return timers_[static_cast<std::size_t>(which)]; }
  bool train() const { return plan_.kind == Plan::Kind::kTrain; }

  const Plan& plan_;
  io_context io_{1};
  stream_descriptor signals_;
  ConsoleWriter console_;
  WorkerOutput output_;
  std::vector<std::unique_ptr<RunObserver>> observers_;
  std::array<steady_timer, 5> timers_;
  steady_timer pipe_timer_;
  StoreServer store_;
  AgentState state_;
  std::vector<std::string> inherited_environment_;
  std::optional<HeldPort> master_port_;
  std::string master_addr_;
  int master_port_number_ = 0;
  std::vector<WorkerProcess> workers_;   // of the current round, by local rank
  std::map<int, int> ranks_taken_over_;  // by the number that the worker had as a standby
  StandbyProcesses standbys_;
  std::vector<char> chunk_;         // shared by all pipes: one read at a time
  std::deque<AgentEvent> pending_;  // events that came up while actions were carried out
  bool feeding_ = false;
  bool swept_ = false;         // the guardian has said so in this round
  bool told_to_stop_ = false;  // by a signal: nobody is waited for any more who only reads
  int rounds_ = 0;             // begun by this agent
  int restart_count_ = 0;
  std::optional<FileTimerServer> file_timers_;
  std::optional<StuckWatch> stuck_;
  steady_timer stuck_timer_;
  HangInquiry hang_;
  std::optional<RunDirectoryWatch> run_directory_;  // where this agent holds its lock
  std::optional<int> exit_code_;
  std::unique_ptr<JobLink> job_;  // on many machines
  // Last: its end waits for the guardian, while everything else still exists.
  GuardianLink guardian_;
};

Agent::Agent(const Plan& plan, const AgentFiles& files, const BlockedSignals& signals, GuardianProcess guardian,
             const MakeObservers& make_observers, std::optional<NetworkStart> network)
    : plan_(plan),
      signals_(io_, signals.descriptor()),
      console_(io_, STDOUT_FILENO, STDERR_FILENO),
      output_(io_, console_, output_settings(plan, files)),
      timers_{steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_)},
      pipe_timer_(io_),
      store_(io_,
             [this](int number, const channel::StoreReply& reply) {
               if (WorkerChannel* const channel = channel_of(number)) channel->send(reply);
             }),
      state_({.world_size = plan.nproc_per_node,
              .mode = network ? AgentSettings::Mode::kMember : AgentSettings::Mode::kAlone,
              .workers_have_channel = plan.kind == Plan::Kind::kTrain,
              .first_round = first_round_in(files.log_root, files.layout),
              .shutdown_timeout = plan.shutdown_timeout,
              .restarts = {plan.max_restarts, plan.refill_by_progress, plan.restart_rules},
              .regroup_limit = plan.regroup_limit,
              .standbys = plan.standbys}),
      inherited_environment_(environment_of_this_process()),
      standbys_(io_, files.log_root, plan.nproc_per_node,
                [this](int number, const channel::FromWorker& message) { on_message(number, message); }),
      chunk_(64 << 10),
      stuck_timer_(io_),
      hang_(io_, hang_settings(plan), hang_hooks()),
      guardian_(
          io_, std::move(guardian), [this](const guardian::Notice& notice) { on_notice(notice); },
          [this] { on_guardian_death(); }) {
  output_.set_unread([this](int rank, Stream stream) {
    const auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
    int bytes = 0;
    return pipe && ::ioctl(pipe->native_handle(), FIONREAD, &bytes) == 0 && bytes > 0;
  });
  observers_ = make_observers(io_, console_);
  const auto environment = [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  if (auto path = FileTimerServer::path_in(environment)) {
    file_timers_.emplace(io_, *std::move(path), [this](const TimerRequest& request) { on_overdue_timer(request); });
  }
  const auto stuck_timeout = stuck_timeout_of(environment("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"));
  if (stuck_timeout.count() > 0) stuck_.emplace(stuck_timeout);
  if (files.lock_fd >= 0) {
    run_directory_.emplace(io_, plan.run_dir, files.lock_fd, [this] {
      publish(RunDirectoryRemoved{plan_.run_dir.string(), realtime_ns()});
    });
  }
  if (network) join_job(*std::move(network));
}

void Agent::join_job(NetworkStart start) {
  JobLink::Hooks hooks;
  hooks.feed = [this](const AgentEvent& event) { feed(event); };
  hooks.publish = [this](const RunEvent& event) { publish(event); };
  hooks.set_deadline = [this](std::optional<rendezvous::Time> deadline) { guardian_.set_deadline(deadline); };
  hooks.answer_worker = [this](int rank, const channel::StoreReply& reply) {
    if (rank < 0 || rank >= static_cast<int>(workers_.size())) return;
    if (const auto& channel = workers_[static_cast<std::size_t>(rank)].channel) channel->send(reply);
  };
  job_ = std::make_unique<JobLink>(io_, std::move(start), plan_, std::move(hooks));
}

int Agent::run() {
  try {
    wait_for_signals();
    feed(agent_event::Begin{});
    if (job_) job_->begin();
    if (!exit_code_) io_.run();
  } catch (const Error& error) {
    if (exit_code_) throw;
    // The console, its readers and the report are told as of any other end; the guardian's end takes the workers with it.
    exit_code_ = static_cast<int>(error.code());
    close_workers();
    master_port_.reset();  // when descriptors ran out, the report needs one
    publish(RunEnded{*exit_code_, error.what(), restart_count_, now().realtime_ns});
  }
  return exit_code_.value();
}

// ---- events ----

void Agent::feed(const AgentEvent& event) {
  pending_.push_back(event);
  if (feeding_) return;  // the loop below, further up the stack, takes it
  feeding_ = true;
  while (!pending_.empty()) {
    const AgentEvent next = std::move(pending_.front());
    pending_.pop_front();
    for (AgentAction& action : state_.on(next, now())) {
      std::visit([this](auto& concrete) { carry_out(concrete); }, action);
    }
  }
  feeding_ = false;
}

void Agent::wait_for_signals() {
  signals_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    signalfd_siginfo info{};
    while (::read(signals_.native_handle(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      on_signal(static_cast<int>(info.ssi_signo));
    }
    wait_for_signals();
  });
}

void Agent::on_signal(int signal) {
  const auto& handled = plan_.signals_to_handle;
  if (std::find(handled.begin(), handled.end(), signal) != handled.end()) {
    told_to_stop_ = true;
    feed(agent_event::SignalArrived{signal});
    if (exit_code_) io_.stop();
    if (swept_) round_may_be_over();
    return;
  }
  // USR1 and USR2 are the script's own business. ddptrain has none for them, and would die.
  if (train()) return;
  for (const WorkerProcess& worker : workers_) guardian_.signal(worker.number, signal);
}

void Agent::on_notice(const guardian::Notice& notice) {
  using Kind = guardian::Notice::Kind;
  if (notice.kind == Kind::kSwept) {
    swept_ = true;
    round_may_be_over();
    return;
  }
  const std::optional<int> rank = rank_of(notice.worker);
  if (!rank) {
    on_standby_notice(notice);
  } else if (notice.kind == Kind::kStarted) {
    workers_[static_cast<std::size_t>(*rank)].pid = notice.pid;
    const bool was_standby = ranks_taken_over_.contains(notice.worker);
    publish(WorkerStarted{global_rank(*rank), *rank, notice.pid, notice.time_ns, was_standby});
  } else {
    on_worker_end(*rank, notice);
  }
}

// The program could not be executed, or no process be made for it.
std::string Agent::why_not_started(const guardian::Notice& notice) const {
  const bool made = notice.kind == guardian::Notice::Kind::kExited;
  const auto stage = made ? static_cast<SpawnError::Stage>(notice.stage) : SpawnError::Stage::kExec;
  return describe(SpawnError{notice.worker, stage, notice.error}, plan_.command.at(0));
}

void Agent::on_worker_end(int rank, const guardian::Notice& notice) {
  if (notice.kind == guardian::Notice::Kind::kExited) {
    WorkerProcess& worker = workers_[static_cast<std::size_t>(rank)];
    worker.pid = 0;
    hang_.gone(rank);
    if (worker.channel) worker.channel->drain();  // its last words come before its end
    if (train()) drain_output(rank);
    store_.forget(notice.worker);
  }
  if (notice.error != 0) {
    feed(agent_event::SpawnFailed{rank, notice.error, why_not_started(notice), notice.time_ns});
    return;
  }
  const ExitStatus status{.code = notice.code, .signal = notice.signal, .core_dumped = notice.core_dumped != 0};
  agent_event::WorkerExited ended{rank, notice.pid, status, notice.time_ns};
  ended.memory = judge_memory(notice.memory, status);
  if (notice.overdue != 0 && job_) ended.unanswered_s = job_->unanswered_s();
  if (const auto file = output_.error_file(rank); !status.ok() && !file.empty()) ended.error_file = read_error_file(file);
  feed(ended);
}

// Of one that waits. One that was dismissed is nobody's.
void Agent::on_standby_notice(const guardian::Notice& notice) {
  using Kind = guardian::Notice::Kind;
  if (notice.kind == Kind::kExited) store_.forget(notice.worker);
  if (!standbys_.has(notice.worker)) return;
  if (notice.kind == Kind::kStarted) return standbys_.started(notice.worker, notice.pid);
  agent_event::StandbyGone gone{.number = notice.worker, .pid = notice.pid, .time_ns = notice.time_ns};
  gone.message = standbys_.forget(notice.worker);
  if (notice.error != 0) {
    gone.message = why_not_started(notice);
  } else {
    gone.status = ExitStatus{.code = notice.code, .signal = notice.signal, .core_dumped = notice.core_dumped != 0};
    const OomVerdict memory = judge_memory(notice.memory, *gone.status);
    if (memory.proof != OomVerdict::Proof::kNone) gone.message = memory.message;
  }
  feed(gone);
}

void Agent::on_guardian_death() {
  throw InternalError(
      "the guardian process of this job died or was killed; all workers are stopped, run the job again to go on");
}

void Agent::on_message(int number, const channel::FromWorker& message) {
  if (const auto* request = std::get_if<channel::StoreRequest>(&message)) {
    if (job_) {
      job_->ask_store(number, *request);
    } else {
      store_.handle(number, *request);
    }
  } else if (const std::optional<int> rank = rank_of(number)) {
    on_worker_message(*rank, message);
  } else if (standbys_.has(number)) {
    on_standby_message(number, message);
  }
}

void Agent::on_standby_message(int number, const channel::FromWorker& message) {
  if (std::holds_alternative<channel::StandbyReady>(message)) {
    publish(StandbyWaits{standbys_.pid(number), now().realtime_ns});
    feed(agent_event::StandbyReady{number});
  } else if (const auto* error = std::get_if<channel::WorkerError>(&message)) {
    standbys_.reported(number, error->message);
    if (!error->fatal) guardian_.signal(number, SIGKILL);  // the channel broke: it would never hear of its rank
  }
}

void Agent::on_worker_message(int rank, const channel::FromWorker& message) {
  if (std::holds_alternative<channel::StandbyReady>(message)) return;  // its rank was on the way already
  if (const auto* published = std::get_if<channel::CheckpointPublished>(&message); published && job_) {
    job_->note_checkpoint(published->step);
  }
  hang_.heard(rank, message);
  publish(WorkerSpoke{global_rank(rank), message, now().realtime_ns});
  feed(agent_event::WorkerSaid{rank, message});
}

// A worker leads its session, and everything that it started and that did not leave is in it: so the session says whose timer
// this is, and a number that is somebody else's by now is nobody's.
void Agent::on_overdue_timer(const TimerRequest& request) {
  const pid_t session = ::getsid(static_cast<pid_t>(request.pid));
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (session <= 0 || workers_[rank].pid != session) continue;
    std::string message = "timer expired: '" + request.scope + "' was not done in time";
    if (request.pid != session) message += " (process " + std::to_string(request.pid) + ")";
    feed(agent_event::TimerExpired{static_cast<int>(rank), request.signal, std::move(message)});
  }
}

// The kernel tells nobody that a process sleeps so, hence the looking again and again; only when the variable asks for it.
void Agent::look_for_stuck_workers() {
  if (!stuck_) return;
  stuck_timer_.expires_after(stuck_->interval());
  stuck_timer_.async_wait([this](const boost::system::error_code& error) {
    if (error) return;
    const auto time = std::chrono::steady_clock::now();
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
      const pid_t pid = workers_[rank].pid;
      if (pid == 0 || !stuck_->see(static_cast<int>(rank), process_state(pid), time)) continue;
      feed(agent_event::WorkerStuck{static_cast<int>(rank), pid,
                                    "process " + std::to_string(pid) +
                                        " has been in uninterruptible sleep (state D) for too long "
                                        "(TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT) and cannot be killed"});
      if (exit_code_) return;
    }
    look_for_stuck_workers();
  });
}

HangInquiry::Hooks Agent::hang_hooks() {
  HangInquiry::Hooks hooks;
  hooks.matters = [this] { return state_.at_work(); };
  hooks.subjects = [this] {
    std::vector<HangInquiry::Subject> running;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank)
      if (workers_[rank].pid > 0) running.push_back({static_cast<int>(rank), workers_[rank].pid});
    return running;
  };
  hooks.ask = [this](int rank) {
    if (const auto& channel = workers_[static_cast<std::size_t>(rank)].channel) channel->send(channel::Where{});
  };
  if (!train()) hooks.bytes_in_files = [this] { return output_.bytes_past_us(); };
  hooks.found = [this](std::vector<HangFinding> findings) { feed(agent_event::HangFound{std::move(findings)}); };
  return hooks;
}

// Output that no log keeps must not be lost: then the worker waits for the console, as it would without us.
void Agent::wait_for_output(int rank, Stream stream) {
  if (output_.is_kept(rank, stream) || !console_.is_behind(stream)) {
    listen(rank, stream);
    return;
  }
  console_.when_at_most(stream, ConsoleWriter::kQueueBytes / 2, [this, rank, stream, round = rounds_] {
    if (round != rounds_) return;
    listen(rank, stream);
    if (swept_) round_may_be_over();
  });
}

void Agent::listen(int rank, Stream stream) {
  auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
  if (!pipe) return;
  pipe->async_wait(stream_descriptor::wait_read, [this, rank, stream](const boost::system::error_code& error) {
    if (error) return;
    const bool later = !output_.is_kept(rank, stream) && console_.is_behind(stream);  // others have filled it meanwhile
    if (later || read_output(rank, stream)) wait_for_output(rank, stream);
  });
}

// One chunk, so that a chatty worker does not keep the others waiting. False at the end of the stream.
bool Agent::read_output(int rank, Stream stream) {
  auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
  if (!pipe) return false;
  const ssize_t n = ::read(pipe->native_handle(), chunk_.data(), chunk_.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n > 0) {
    hang_.printed(rank);
    output_.bytes(rank, stream, std::span(chunk_).first(static_cast<std::size_t>(n)));
    return true;
  }
  end_output(rank, stream);
  round_may_be_over();
  return false;
}

// What a worker that has ended had printed: it may be evidence, and its successor has pipes of its own. Not for ever, since a
// child of it may go on.
void Agent::drain_output(int rank) {
  constexpr int kMostChunks = 64;
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    const auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
    int unread = 0;
    for (int i = 0; i < kMostChunks && pipe && ::ioctl(pipe->native_handle(), FIONREAD, &unread) == 0 && unread > 0; ++i) {
      read_output(rank, stream);
    }
  }
}

void Agent::end_output(int rank, Stream stream) {
  auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
  if (!pipe) return;
  pipe.reset();
  output_.end_of_stream(rank, stream);
}

// The round is over when every process of it is gone and everything they printed has been read.
void Agent::round_may_be_over() {
  if (!swept_) return;
  const bool reading =
      std::any_of(workers_.begin(), workers_.end(), [](const WorkerProcess& w) { return w.pipes[0] || w.pipes[1]; });
  if (!reading) {
    end_round();
    return;
  }
  const bool reader_is_slow = console_.is_behind(Stream::kStdout) || console_.is_behind(Stream::kStderr);
  if (!output_.all_is_kept() && reader_is_slow && !told_to_stop_) return;  // wait_for_output comes back
  pipe_timer_.expires_after(kPipeGrace);
  pipe_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && swept_) end_round();
  });
}

void Agent::end_round() {
  swept_ = false;
  pipe_timer_.cancel();
  hang_.end_round();
  close_workers();
  feed(agent_event::RoundSwept{});
}

void Agent::close_workers() {
  for (int rank = 0; rank < static_cast<int>(workers_.size()); ++rank) {
    WorkerProcess& worker = workers_[static_cast<std::size_t>(rank)];
    end_output(rank, Stream::kStdout);
    end_output(rank, Stream::kStderr);
    if (worker.channel) worker.channel->close();
  }
  standbys_.close();
}

// ---- actions ----

void Agent::carry_out(const agent_action::StartRound& action) {
  ++rounds_;
  restart_count_ = action.restart_count;
  if (run_directory_) run_directory_->look();
  take_master_port();
  store_.clear();
  const auto ranks = ranks_here();
  output_.begin_round({action.round, action.restart_count, ranks});
  workers_.clear();
  workers_.resize(ranks.size());
  ranks_taken_over_.clear();
  if (file_timers_) file_timers_->forget_all();
  for (const RankAssignment& rank : ranks) start_worker(rank, action.restart_count);
  if (stuck_) stuck_->clear();
  look_for_stuck_workers();
  watch_for_hangs();
}

void Agent::carry_out(const agent_action::ContinueRound& action) {
  restart_count_ = action.restart_count;
  if (run_directory_) run_directory_->look();
  take_master_port();
  output_.name_anew(ranks_here());
  watch_for_hangs();
}

void Agent::carry_out(const agent_action::StartWorker& action) {
  clear_place(action.rank, action.round, action.restart_count);
  start_worker(ranks_here()[static_cast<std::size_t>(action.rank)], action.restart_count);
  watch_for_hangs();
}

void Agent::carry_out(const agent_action::TakeOver& action) {
  clear_place(action.rank, action.round, action.restart_count);
  output_.begin_worker(action.rank);
  WorkerProcess& worker = workers_[static_cast<std::size_t>(action.rank)];
  worker = standbys_.take(action.standby);
  ranks_taken_over_[action.standby] = action.rank;
  worker.channel->send(
      channel::TakeOver{.rank = global_rank(action.rank), .local_rank = action.rank, .restart_count = action.restart_count});
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    if (worker.pipes[static_cast<std::size_t>(stream)]) wait_for_output(action.rank, stream);
  }
  // Of one that the guardian is just starting, its notice says so.
  if (worker.pid > 0) publish(WorkerStarted{global_rank(action.rank), action.rank, worker.pid, now().realtime_ns, true});
  watch_for_hangs();
}

// Of a worker that is gone, for its successor.
void Agent::clear_place(int rank, int round, int restart_count) {
  restart_count_ = restart_count;
  WorkerProcess& worker = workers_[static_cast<std::size_t>(rank)];
  end_output(rank, Stream::kStdout);
  end_output(rank, Stream::kStderr);
  if (worker.channel) worker.channel->close();
  ranks_taken_over_.erase(worker.number);
  worker = WorkerProcess{};
  output_.begin_successor(rank, {round, restart_count, ranks_here()});
}

void Agent::carry_out(const agent_action::StartStandby& action) {
  WorkerSettings settings = worker_settings(ranks_here().front(), 0);
  settings.standby = true;
  SpawnRequest request{.arguments = plan_.command, .environment = worker_environment(inherited_environment_, settings)};
  request.arguments.insert(request.arguments.begin() + 1, "--standby");
  try {
    standbys_.start(action.number, guardian_, request);
  } catch (const std::exception& error) {
    feed(agent_event::StandbyGone{.number = action.number, .message = error.what(), .time_ns = now().realtime_ns});
  }
}

std::optional<int> Agent::rank_of(int number) const {
  if (number < plan_.nproc_per_node) return number;
  const auto found = ranks_taken_over_.find(number);
  return found == ranks_taken_over_.end() ? std::nullopt : std::optional(found->second);
}

WorkerChannel* Agent::channel_of(int number) const {
  const std::optional<int> rank = rank_of(number);
  return rank ? workers_[static_cast<std::size_t>(*rank)].channel.get() : standbys_.channel(number);
}

// All of them begin anew, those that kept their state as well: they join the group again.
void Agent::watch_for_hangs() {
  hang_.begin_round({.workers = static_cast<int>(workers_.size()),
                     .rank_offset = global_rank(0),
                     .many_nodes = job_ && job_->release().nodes > 1});
}

void Agent::take_master_port() {
  master_port_.reset();  // before the next is taken, in case it is the same
  if (job_) {
    master_port_ = job_->hold_master_port();
    master_addr_ = job_->master_address();
    master_port_number_ = job_->release().master.port;
  } else {
    master_port_.emplace(HeldPort::of(plan_.master_port, plan_.master_port_need));
    master_addr_ = plan_.master_addr;
    master_port_number_ = master_port_->port();
  }
}

std::vector<RankAssignment> Agent::ranks_here() const {
  const NodeShare here{.role = plan_.role, .local_world_size = plan_.nproc_per_node};
  std::vector<RankAssignment> ranks = assign_ranks(std::span(&here, 1));
  if (!job_) return ranks;
  const rendezvous::Release& release = job_->release();
  for (RankAssignment& one : ranks) {
    one.rank += release.rank_offset;
    one.world_size = release.world_size;
    one.group_rank = release.group_rank;
    one.group_world_size = release.nodes;
    one.role_rank += release.role_rank_offset;
    one.role_world_size = release.role_world_size;
  }
  return ranks;
}

// What is the same for all workers of the node but for their ranks.
WorkerSettings Agent::worker_settings(const RankAssignment& ranks, int restart_count) const {
  return {.ranks = ranks,
          .master_addr = master_addr_,
          .master_port = master_port_number_,
          .restart_count = restart_count,
          .max_restarts = plan_.max_restarts,
          .generation = job_ ? std::optional(static_cast<int>(job_->release().id.round)) : std::nullopt,
          .run_id = plan_.run_id,
          .channel = train() ? ChannelUse::kGiven : ChannelUse::kNone,
          .signals_to_handle = plan_.signals_to_handle,
          .node_address = job_ ? job_->own_address() : std::string(),
          .chaos = plan_.chaos,
          .timer_file = file_timers_ ? file_timers_->path() : std::string()};
}

void Agent::start_worker(const RankAssignment& ranks, int restart_count) {
  const int rank = ranks.local_rank;
  WorkerProcess& worker = workers_[static_cast<std::size_t>(rank)];
  worker.number = rank;
  output_.begin_worker(rank);
  Ends standard_output = output_of(rank, Stream::kStdout);
  Ends standard_error = output_of(rank, Stream::kStderr);
  Ends channel = train() ? channel_pair() : Ends{Descriptor(), Descriptor()};

  const auto local_rank = static_cast<std::size_t>(ranks.local_rank);
  const WorkerPlace place = local_rank < plan_.places.size() ? plan_.places[local_rank] : WorkerPlace{};
  WorkerSettings settings = worker_settings(ranks, restart_count);
  settings.error_file = output_.error_file(rank).string();
  settings.only_device = place.only_device;
  const SpawnRequest request{.arguments = train() ? plan_.command : fill_arguments(plan_.command, ranks.local_rank),
                             .environment = worker_environment(inherited_environment_, settings),
                             .cpus = place.cpus};
  try {
    guardian_.spawn(rank, request, {standard_output.workers.get(), standard_error.workers.get(), channel.workers.get()});
  } catch (const std::system_error& error) {
    throw refused_by_system("cannot start a worker", error.code().value());
  }

  const auto read = [&](Stream stream, Ends& ends) {
    if (ends.ours.get() < 0) return;  // the worker writes to a file
    worker.pipes[static_cast<std::size_t>(stream)] = std::make_unique<stream_descriptor>(io_, ends.ours.release());
    wait_for_output(rank, stream);
  };
  read(Stream::kStdout, standard_output);
  read(Stream::kStderr, standard_error);
  if (train()) {
    worker.channel = std::make_shared<WorkerChannel>(
        io_, channel.ours.release(), [this, rank](const channel::FromWorker& message) { on_message(rank, message); },
        [this, rank](const std::string& why) {
          on_worker_message(rank, channel::WorkerError{.message = "worker channel closed: " + why, .fatal = false});
        });
    worker.channel->start();
  }
}

Ends Agent::output_of(int rank, Stream stream) {
  const int file = output_.take_descriptor(rank, stream);
  return file >= 0 ? Ends{Descriptor(), Descriptor(file)} : output_pipe();
}

void Agent::carry_out(const agent_action::Tell& action) {
  for (const int rank : action.ranks) {
    if (const auto& channel = workers_[static_cast<std::size_t>(rank)].channel) channel->send(action.message);
  }
}

void Agent::carry_out(const agent_action::SendSignal& action) {
  for (const int rank : action.ranks) guardian_.signal(workers_[static_cast<std::size_t>(rank)].number, action.signal);
}

void Agent::carry_out(const agent_action::Sweep& action) {
  if (!guardian_.nothing_is_left()) return guardian_.sweep(action.patient);
  boost::asio::post(io_, [this] {
    swept_ = true;
    round_may_be_over();
  });
}

void Agent::carry_out(const agent_action::SetTimer& action) {
  timer(action.timer).expires_after(action.after);
  timer(action.timer).async_wait([this, which = action.timer](const boost::system::error_code& error) {
    if (!error) feed(agent_event::TimerFired{which});
  });
}

void Agent::carry_out(const agent_action::CancelTimer& action) {
  timer(action.timer).cancel();
}

void Agent::carry_out(agent_action::Emit& action) {
  if (auto* failed = std::get_if<RoundFailed>(&action.event)) {
    add_evidence(failed->first);
    for (Failure& failure : failed->consequences) add_evidence(failure);
    if (failed->decision == RoundFailed::Decision::kGiveUp) hand_on(failed->first);
  }
  publish(action.event);
}

void Agent::carry_out(const agent_action::Finish& action) {
  exit_code_ = action.exit_code;
  if (action.abandon) {
    guardian_.abandon();
    close_workers();
  }
  if (output_.all_is_kept() || told_to_stop_) {
    io_.stop();
    return;
  }
  // What the workers printed is nowhere else: their reader gets all of it.
  console_.when_at_most(Stream::kStdout, 0, [this] { console_.when_at_most(Stream::kStderr, 0, [this] { io_.stop(); }); });
}

// What the machine can't know: where it was, and the last lines of stderr.
void Agent::add_evidence(Failure& failure) const {
  if (failure.local_rank < 0) return;  // another node's
  failure.host = host_name();
  if (failure.cause == Cause::kSpawn) return;
  failure.stderr_tail = output_.stderr_tail(failure.local_rank);
  failure.log_path = output_.stderr_log(failure.local_rank).string();
  const auto shown = static_cast<std::int64_t>(failure.stderr_tail.size());
  const std::int64_t lines = shown > 0 ? line_count(failure.log_path) : 0;
  if (lines >= shown && shown > 0) failure.log_line = lines - shown + 1;
}

// Whoever started us may have asked for an error file, as we ask our workers.
void Agent::hand_on(const Failure& first) const {
  constexpr std::string_view kName = "TORCHELASTIC_ERROR_FILE=";
  if (first.error_file.empty()) return;
  for (const std::string& variable : inherited_environment_) {
    if (!variable.starts_with(kName) || variable.size() == kName.size()) continue;
    const int code = !first.status ? 0 : first.status->signal != 0 ? -first.status->signal : first.status->code;
    copy_error_file(first.error_file, variable.substr(kName.size()), code);
    return;
  }
}

void Agent::publish(const RunEvent& event) {
  for (const auto& observer : observers_) observer->on(event);
}

}  // namespace

int run_agent(const Plan& plan, const AgentFiles& files, const MakeObservers& make_observers,
              std::optional<NetworkStart> network, const AtEnd& at_end) {
  const BlockedSignals signals(plan.signals_to_handle);
  GuardianProcess guardian = start_guardian(files.lock_fd, files.report);
  Agent agent(plan, files, signals, std::move(guardian), make_observers, std::move(network));
  const int exit_code = agent.run();
  agent.say_farewell();
  if (at_end) at_end(exit_code);
  return exit_code;
}

}  // namespace ddprun
