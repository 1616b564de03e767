// Implementation of agent_shell.hpp, in this order: construction and run(), the agent's own failures, incoming events, findings
// of the monitors, the end of a round, outgoing actions.
//
// Note [Why this file is long] The file connects each event and action of the state machine to the system. Each connection is a
// few lines and uses the same members.
#include "launcher/agent/agent_shell.hpp"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/base/check.hpp"
#include "common/config/parse_config.hpp"
#include "launcher/agent/agent_settings.hpp"
#include "launcher/agent/failure_evidence.hpp"
#include "launcher/agent/finish_files.hpp"
#include "launcher/agent/job_control.hpp"
#include "launcher/leftovers/process_tree.hpp"
#include "launcher/options/options.hpp"
#include "launcher/restart_policy/restart_policy.hpp"

namespace ddprun {
namespace {

using boost::asio::steady_timer;
using boost::asio::posix::stream_descriptor;
using std::chrono::milliseconds;

// Time that the agent waits for a worker's output pipe to close after all processes of the round have exited. If a pipe is
// still open after that, an unrelated process has inherited it.
constexpr milliseconds kPipeGrace{200};

}  // namespace

AgentShell::AgentShell(const Plan& plan, const AgentFiles& files, const BlockedSignals& signals, GuardianProcess guardian,
                       const MakeObservers& make_observers, std::optional<NetworkStart> network)
    : plan_(plan),
      signals_(io_, signals.descriptor()),
      console_(io_, STDOUT_FILENO, STDERR_FILENO),
      output_(io_, files_, console_, output_settings(plan, files)),
      reader_(io_, console_, output_, *this),
      timers_{steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_)},
      pipe_timer_(io_),
      store_(io_,
             [this](int number, const channel::StoreReply& reply) {
               if (WorkerChannel* const channel = workers_.channel_of(number)) channel->send(reply);
             }),
      state_(agent_settings(plan, files, network ? AgentSettings::Mode::kMember : AgentSettings::Mode::kAlone)),
      inherited_environment_(environment_of_this_process()),
      standbys_(io_, files_, files.log_root, plan.nproc_per_node, *this),
      workers_({io_, plan, inherited_environment_, output_, reader_, guardian_, standbys_}, *this),
      stuck_(io_, stuck_timeout_of(process_environment()("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT")), *this),
      slow_stop_(io_, {}, *this),
      early_end_(io_, *this),
      hang_(io_, hang_settings(plan), *this),
      failure_(io_, plan.shutdown_timeout, *this),
      guardian_(io_, std::move(guardian), *this) {
  output_.set_unread([this](int rank, Stream stream) { return reader_.has_unread(rank, stream); });
  if (network) {
    files_.start_async();  // the heartbeats that renew the worker lease must not wait for file work
    network->shell.node.member.next_number = state_.first_round();
    job_ = std::make_unique<JobLink>(io_, *std::move(network), plan_, static_cast<JobLink::Agent&>(*this));
  }
  observers_ = make_observers(access());
  if (auto path = FileTimerServer::path_in(process_environment())) {
    file_timers_.emplace(io_, *std::move(path), [this](const TimerRequest& request) {
      if (const auto expired = worker_of_timer(request, workers_.pids())) feed(*expired);
    });
  }
  if (files.lock_fd >= 0) {
    run_directory_.emplace(io_, files_, plan.run_dir, files.lock_fd, plan.config ? to_json_text(*plan.config) : std::string(),
                           [this] {
                             publish(RunDirectoryRemoved{plan_.run_dir.string(), realtime_ns()});
                           });
  }
}

AgentAccess AgentShell::access() {
  return {io_,
          console_,
          files_,
          [this](std::string_view report) { guardian_.keep_report(report); },
          [this](int signal) { failure_.guarded([this, signal] { stop_as_on_signal(signal); }); },
          [this](const RunEvent& event) { publish(event); },
          job_.get(),
          [this](OutputReader::Tap tap) { reader_.set_tap(std::move(tap)); }};
}

int AgentShell::run() {
  failure_.guarded([this] {
    wait_for_signals();
    feed(agent_event::Begin{});
    if (job_) job_->begin();
  });
  while (!exit_code_ && !failure_.guarded([this] { io_.run(); })) {
  }
  finish_files(console_, {&files_, job_ ? &job_->records() : nullptr});  // waits until the report and the logs are written
  return existing(exit_code_, "the agent's event loop ended before the job ended");
}

// ---- the agent's own failures ----

void AgentShell::save_and_stop(const agent_event::AgentFailed& failure) {
  master_.release();  // frees the store's sockets: the report needs a descriptor, and this process may have no free one
  feed(failure);
}

// Publishes RunEnded, so that the console and the report show the end of the job. The guardian kills the workers when it
// exits.
void AgentShell::end_by(const agent_event::AgentFailed& failure) {
  exit_code_ = failure.exit_code;
  io_.stop();
  workers_.close();
  master_.release();
  publish(RunEnded{failure.exit_code, failure.why, restart_count_, instant_now().realtime_ns});
}

// ---- incoming events: signals, the guardian, workers' channels, timers ----

void AgentShell::feed(const AgentEvent& event) {
  pending_.push_back(event);
  // An action or an observer may feed another event. The outer call of this function then handles it.
  if (feeding_) return;
  feeding_ = true;
  while (!pending_.empty()) {
    const AgentEvent next = std::move(pending_.front());
    pending_.pop_front();
    failure_.guarded([&] {
      for (AgentAction& action : state_.on(next, instant_now())) {
        std::visit([this](auto& concrete) { carry_out(concrete); }, action);
      }
    });
  }
  feeding_ = false;
}

void AgentShell::publish(const RunEvent& event) {
  for (const auto& observer : observers_.observers) observer->on(event);
}

void AgentShell::wait_for_signals() {
  signals_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    signalfd_siginfo info{};
    while (::read(signals_.native_handle(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      failure_.guarded([&] { on_signal(static_cast<int>(info.ssi_signo)); });
    }
    wait_for_signals();
  });
}

void AgentShell::on_signal(int signal) {
  if (stops_job(signal)) return stop_as_on_signal(signal);
  // If ddprun is process 1 of a container, it inherits the orphans of `docker exec`, and must reap them.
  if (signal == SIGCHLD) return guardian::reap_orphans_of_others();
  if (signal == SIGWINCH) return workers_.terminal_resized();
  if (signal == SIGTSTP) return stop_with_workers(plan_, workers_, hang_, console_);
  // Only scripts receive SIGUSR1 and SIGUSR2. ddptrain has no handlers for them, so they would kill it.
  if (!train()) workers_.signal_all(signal);
}

bool AgentShell::stops_job(int signal) const {
  return std::ranges::find(plan_.signals_to_handle, signal) != plan_.signals_to_handle.end();
}

void AgentShell::stop_as_on_signal(int signal) {
  stop_requested_ = true;
  feed(agent_event::SignalArrived{signal});
  if (exit_code_) io_.stop();
  if (swept_) check_round_end();
}

// The workers are dead: the kernel kills them when their parent, the guardian, dies.
void AgentShell::on_guardian_death() {
  failure_.end_immediately(
      {static_cast<int>(ExitCode::kInternal),
       "the process job-guardian, which ddprun starts to supervise the workers, died or was killed, and all workers were "
       "killed with it: run the job again to continue",
       {}});
}

void AgentShell::handle(const guardian::Notice& notice) {
  using Kind = guardian::Notice::Kind;
  files_.start_async();  // Workers may run after the guardian's first message, so file work must no longer block this thread.
  if (notice.kind == Kind::kStoreMessage) return console_.line(Stream::kStderr, store_message_line(notice));
  if (notice.kind == Kind::kContinued) return on_continued(notice);
  if (notice.kind == Kind::kLeftoverAwaited) return on_awaited_leftover(notice);
  if (notice.kind == Kind::kLeftoverEnded) return on_ended_leftover(notice);
  if (notice.kind == Kind::kSignalled) return stops_job(notice.signal) ? stop_as_on_signal(notice.signal) : void();
  if (notice.kind == Kind::kSwept) {
    swept_ = true;
    return check_round_end();
  }
  const std::optional<int> rank = workers_.rank_of(notice.worker);
  if (!rank) return on_standby_notice(notice);
  if (notice.kind == Kind::kStarted) {
    workers_.at(*rank).pid = notice.pid;
    publish_start(*rank, notice.time_ns, workers_.was_standby(notice.worker));
  } else {
    on_worker_end(*rank, notice);
  }
}

void AgentShell::on_continued(const guardian::Notice& notice) {
  const std::optional<int> rank = workers_.rank_of(notice.worker);
  const double stopped_s = static_cast<double>(notice.stopped_us) / 1e6;
  if (rank) publish(WorkerContinued{global_rank(*rank), stopped_s, instant_now().realtime_ns});
}

// Handles the notice that a worker's first process has exited, but one of its child processes (a leftover) continues the work.
// From now on the agent reads /proc and stack traces of this child.
void AgentShell::on_awaited_leftover(const guardian::Notice& notice) {
  const std::optional<int> rank = workers_.rank_of(notice.worker);
  if (!rank) return;
  workers_.at(*rank).pid = notice.pid;
  publish(LeftoversFound{.what = LeftoversFound::What::kAwaited,
                         .rank = global_rank(*rank),
                         .processes = {std::string(notice.text.data())},
                         .time_ns = notice.time_ns});
}

// Collects the leftover processes that the guardian ends at the same time, so that one line of the console lists them.
void AgentShell::on_ended_leftover(const guardian::Notice& notice) {
  if (ended_leftovers_.processes.empty()) boost::asio::post(io_, [this] { publish_ended_leftovers(); });
  ended_leftovers_.time_ns = notice.time_ns;
  ended_leftovers_.processes.emplace_back(notice.text.data());
}

void AgentShell::publish_ended_leftovers() {
  if (!ended_leftovers_.processes.empty()) publish(std::exchange(ended_leftovers_, {}));
}

void AgentShell::on_worker_end(int rank, const guardian::Notice& notice) {
  const WorkerProcess& worker = workers_.ended(rank);
  if (notice.kind == guardian::Notice::Kind::kExited) {
    hang_.gone(rank);
    if (worker.channel) worker.channel->drain();  // the worker's last messages must be handled before its exit event
    const bool failed = notice.code != 0 || notice.signal != 0;
    if (train() || failed) reader_.drain(rank);
    store_.forget(notice.worker);
  }
  if (notice.error != 0) {
    feed(agent_event::SpawnFailed{rank, notice.error, spawn_failure_reason(notice, plan_.command.at(0), files_),
                                  notice.time_ns});
    return;
  }
  agent_event::WorkerExited ended = worker_exit_event(rank, notice);
  if (!train()) early_end_.ended(rank, ended.status.ok());
  if (!ended.status.ok()) add_worker_evidence(ended, {output_, files_, plan_});
  if (notice.lease_expired != 0 && job_) ended.unanswered_s = job_->unanswered_s();
  feed(ended);
}

// Handles notices about a standby that waits for a rank. A standby that was already dismissed is ignored.
void AgentShell::on_standby_notice(const guardian::Notice& notice) {
  using Kind = guardian::Notice::Kind;
  if (notice.kind == Kind::kExited) store_.forget(notice.worker);
  if (!standbys_.has(notice.worker)) return;
  if (notice.kind == Kind::kStarted) return standbys_.started(notice.worker, notice.pid);
  feed(standby_exit_event(notice, standbys_.forget(notice.worker), plan_.command.at(0), files_));
}

void AgentShell::handle(int number, const channel::FromWorker& message) {
  if (WorkerChannel* const channel = train() ? nullptr : workers_.channel_of(number)) {
    if (const pid_t channel_pid = channel->take_channel_pid(); channel_pid > 0) guardian_.note_channel_pid(number, channel_pid);
  }
  if (const auto* request = std::get_if<channel::StoreRequest>(&message)) {
    if (job_) {
      job_->send_store_request(number, *request);
    } else {
      store_.handle(number, *request);
    }
  } else if (const std::optional<int> rank = workers_.rank_of(number)) {
    on_worker_message(*rank, message);
  } else if (standbys_.has(number)) {
    on_standby_message(number, message);
  }
}

void AgentShell::on_standby_message(int number, const channel::FromWorker& message) {
  switch (standbys_.on_message(number, message)) {
    case StandbyProcesses::MessageResult::kBecameReady:
      publish(standbys_.ready_event(number, instant_now().realtime_ns));
      return feed(agent_event::StandbyReady{number});
    case StandbyProcesses::MessageResult::kUnresponsive:
      return guardian_.signal(number, SIGKILL);
    case StandbyProcesses::MessageResult::kNothingNew:
      return;
  }
}

void AgentShell::on_worker_message(int rank, const channel::FromWorker& message) {
  // If a process with a rank sends this message, the message is late and is ignored.
  if (std::holds_alternative<channel::StandbyReady>(message)) return;
  if (const auto* published = std::get_if<channel::CheckpointPublished>(&message); published && job_) {
    job_->note_checkpoint(published->step);
  }
  hang_.on_message(rank, message);
  publish(WorkerReported{global_rank(rank), message, instant_now().realtime_ns});
  feed(agent_event::WorkerMessageReceived{rank, message});
}

void AgentShell::on_channel_closed(int rank, const std::string& why) {
  failure_.guarded([&] {
    if (!train()) return publish(no_protocol(global_rank(rank), why, instant_now().realtime_ns));
    on_worker_message(rank, channel::WorkerError{.message = "worker channel closed: " + why, .fatal = false});
  });
}

void AgentShell::on_cold_start(int number, const std::string& why) {
  const std::string rank = std::to_string(global_rank(workers_.rank_of(number).value_or(0)));
  console_.line(Stream::kStderr, "ddprun: rank " + rank + " starts without its spare interpreter: " + why);
}

// Kills a spare interpreter that does not answer after it was given a rank. A new interpreter then starts for this rank, as if
// no spare had existed.
void AgentShell::on_unresponsive(int number) {
  failure_.guarded([&] {
    const std::optional<int> rank = workers_.rank_of(number);
    if (!rank || workers_.at(*rank).number != number || workers_.at(*rank).pid <= 0 || !at_work()) return;
    const std::string pid = std::to_string(workers_.at(*rank).pid);
    on_cold_start(number, "the spare interpreter (process " + pid + ") did not answer within 5 s and is killed");
    guardian_.signal(number, SIGKILL);
    feed(agent_event::SpareUnresponsive{*rank});
  });
}

void AgentShell::answer_worker(int rank, const channel::StoreReply& reply) {
  if (rank >= 0 && rank < static_cast<int>(workers_.size())) workers_.send(rank, reply);
}

void AgentShell::on_output(int rank) {
  hang_.printed(rank);
  if (!std::exchange(script_printed_, true)) feed(agent_event::ScriptPrinted{});
}

// ---- findings of the monitors ----

std::vector<int> AgentShell::global_ranks(std::vector<int> ranks) const {
  for (int& rank : ranks) rank = global_rank(rank);
  return ranks;
}

void AgentShell::report_early_end(double seconds, std::vector<int> ended, std::vector<int> running) {
  publish(WorkersLeft{seconds, global_ranks(std::move(ended)), global_ranks(std::move(running)), instant_now().realtime_ns});
}

void AgentShell::report_slow_stop(double seconds, std::vector<StopIsSlow::Awaited> awaited) {
  for (StopIsSlow::Awaited& one : awaited) one.rank = global_rank(one.rank);
  publish(StopIsSlow{seconds, state_.first_failure(), std::move(awaited), instant_now().realtime_ns});
}

std::optional<StackTool> AgentShell::find_tool(bool python) {
  return files_.query([python] { return find_stack_tool(python); });
}

// ---- the end of a round ----

// Checks whether the round has ended: all its processes have exited, and all their output has been read.
void AgentShell::check_round_end() {
  if (!swept_) return;
  reader_.all_writers_ended();
  if (!reader_.reading()) return end_round();
  const bool reader_is_slow = console_.is_behind(Stream::kStdout) || console_.is_behind(Stream::kStderr);
  // OutputReader calls this function again when the console has accepted the waiting output.
  if (output_.any_is_awaited() && reader_is_slow && !stop_requested_) return;
  pipe_timer_.expires_after(kPipeGrace);
  pipe_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && swept_) end_round();
  });
}

void AgentShell::end_round() {
  swept_ = false;
  publish_ended_leftovers();
  slow_stop_.begin_round();
  pipe_timer_.cancel();
  hang_.end_round();
  workers_.close();
  feed(agent_event::RoundSwept{});
}

// ---- outgoing actions: starts, messages, signals, timers, reports, the end ----

// Call this at the start of a round. The new round may have a different coordinator, and therefore a different MASTER_ADDR and
// MASTER_PORT.
std::vector<RankAssignment> AgentShell::prepare_round(int restart_count) {
  restart_count_ = restart_count;
  if (run_directory_) run_directory_->probe();
  master_.take(plan_, job_.get(), guardian_);
  return ranks();
}

void AgentShell::carry_out(const agent_action::StartRound& action) {
  facts_ = job_ ? facts_of(job_->release().budget.history) : action.facts;
  const std::vector<RankAssignment> ranks = prepare_round(action.restart_count);
  store_.clear();
  output_.begin_round({action.round, action.restart_count, ranks});
  workers_.begin_round(ranks.size(), action.spares);
  if (file_timers_) file_timers_->forget_all();
  script_printed_ = train() || plan_.standbys == 0;
  for (const RankAssignment& rank : ranks) workers_.start(worker_settings(rank, action.restart_count));
  // These events are posted, so that observers receive the start of the round first. Workers that were spare interpreters
  // already run, so their WorkerStarted events would otherwise come before the event RoundStarted.
  if (!action.spares.empty()) {
    boost::asio::post(io_, [this] {
      for (const auto& [rank, pid] : workers_.taken_over()) publish_start(rank, instant_now().realtime_ns, true);
    });
  }
  master_.serve_store(guardian_);
  stuck_.begin_round();
  slow_stop_.begin_round();
  early_end_.begin_round(static_cast<int>(ranks.size()));
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::ContinueRound& action) {
  output_.set_ranks(prepare_round(action.restart_count));
  master_.serve_store(guardian_);
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::StartWorker& action) {
  restart_count_ = action.restart_count;
  facts_ = job_ ? facts_of(job_->release().budget.history) : action.facts;
  if (run_directory_) run_directory_->probe();
  const std::vector<RankAssignment> all = ranks();
  workers_.free_rank(action.rank, {action.round, action.restart_count, all});
  workers_.start(worker_settings(of_rank(all, action.rank), action.restart_count));
  early_end_.started(action.rank);
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::TakeOver& action) {
  restart_count_ = action.restart_count;
  workers_.free_rank(action.rank, {action.round, action.restart_count, ranks()});
  workers_.take_over(action.rank, action.standby);
  workers_.send(
      action.rank,
      channel::AssignRank{.rank = global_rank(action.rank), .local_rank = action.rank, .restart_count = action.restart_count});
  // If the pid is 0, the guardian is still starting this process, and its kStarted notice will report the pid.
  if (workers_.at(action.rank).pid > 0) publish_start(action.rank, instant_now().realtime_ns, true);
  watch_for_hangs();
}

void AgentShell::publish_start(int rank, std::int64_t time_ns, bool standby) {
  publish(WorkerStarted{global_rank(rank), rank, workers_.at(rank).pid, time_ns, standby});
}

// Restarts hang detection for all workers. Workers that kept their process and state are included, since they must join the
// new process group too.
void AgentShell::watch_for_hangs() {
  hang_.begin_round({.workers = static_cast<int>(workers_.size()),
                     .rank_offset = global_rank(0),
                     .many_nodes = job_ && job_->release().nodes > 1});
}

void AgentShell::carry_out(const agent_action::StartStandby& action) {
  try {
    const std::vector<RankAssignment> all = ranks();
    workers_.start_standby(action.number, worker_settings(of_rank(all, 0), 0));
  } catch (const std::exception& error) {
    feed(agent_event::StandbyGone{.number = action.number, .message = error.what(), .time_ns = instant_now().realtime_ns});
  }
}

// Returns the settings of one worker. Apart from the ranks, all workers of this node have the same settings.
WorkerSettings AgentShell::worker_settings(const RankAssignment& ranks, int restart_count) const {
  WorkerSettings settings = planned_settings(plan_, ranks);
  master_.fill(settings);
  settings.restart_count = restart_count;
  settings.facts = facts_;
  if (file_timers_) settings.timer_file = file_timers_->path();
  if (!job_) return settings;
  settings.generation = static_cast<int>(job_->release().id.round);
  settings.node_address = job_->own_address();
  return settings;
}

void AgentShell::carry_out(const agent_action::SendMessage& action) {
  for (const int rank : action.ranks) {
    workers_.send(rank, action.message);
    // After a Stop message the worker saves its state. If a start script is the parent of the worker, the script may exit
    // before the worker. Signal 0 informs the guardian of the stop, so that the guardian then waits for the worker.
    if (std::holds_alternative<channel::Stop>(action.message)) workers_.signal(rank, 0, GuardianLink::Purpose::kStops);
  }
}

void AgentShell::carry_out(const agent_action::SendSignal& action) {
  const auto purpose = at_work() ? GuardianLink::Purpose::kAny : GuardianLink::Purpose::kStops;
  for (const int rank : action.ranks) workers_.signal(rank, action.signal, purpose);
  if (!at_work()) slow_stop_.stops();
  if (action.signal == SIGKILL) slow_stop_.killed(action.ranks);
  if (action.signal == SIGINT && !train()) slow_stop_.interrupted();
}

void AgentShell::carry_out(const agent_action::Sweep& action) {
  if (!guardian_.no_children_left()) return guardian_.sweep(action);
  boost::asio::post(io_, [this] {
    swept_ = true;
    check_round_end();
  });
}

void AgentShell::carry_out(const agent_action::ReportRoundOver& action) {
  // If this node's workers are done (kDone), workers of other nodes may still need the store on this node. So the store keeps
  // running.
  if (action.how != agent_action::ReportRoundOver::How::kDone) master_.end_store(guardian_);
  job().carry_out(action);
}

void AgentShell::carry_out(const agent_action::SetTimer& action) {
  timer(action.timer).expires_after(action.after);
  timer(action.timer).async_wait([this, which = action.timer](const boost::system::error_code& error) {
    if (!error) feed(agent_event::TimerFired{which});
  });
}

void AgentShell::carry_out(agent_action::Emit& action) {
  if (auto* failed = std::get_if<RoundFailed>(&action.event)) add_evidence(*failed, output_, files_, inherited_environment_);
  publish(action.event);
}

void AgentShell::carry_out(const agent_action::Finish& action) {
  exit_code_ = action.exit_code;
  if (action.abandon) {
    guardian_.abandon();
    workers_.close();
  }
  if (!output_.any_is_awaited() || stop_requested_) return io_.stop();
  // The agent must not exit before the reader of its stdout and stderr has received all output of the workers.
  console_.when_at_most(Stream::kStdout, 0, [this] { console_.when_at_most(Stream::kStderr, 0, [this] { io_.stop(); }); });
}

}  // namespace ddprun
