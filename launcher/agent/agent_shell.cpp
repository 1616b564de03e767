// Implementation of agent_shell.hpp, in this order: construction and run, the agent's own failures, events, actions.
//
// Note [Why this file is long]
// It connects each event and action of the state machine to the system. Each connection is a few lines and uses the same
// members.
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
#include "launcher/agent/job_control.hpp"
#include "launcher/agent/last_files.hpp"
#include "launcher/agent/node_ranks.hpp"
#include "launcher/agent/sweep_order.hpp"
#include "launcher/leftovers/process_tree.hpp"
#include "launcher/options/options.hpp"
#include "launcher/verdict/restart_policy.hpp"

namespace ddprun {
namespace {

using boost::asio::steady_timer;
using boost::asio::posix::stream_descriptor;
using std::chrono::milliseconds;

// How long a pipe may stay open after all descendants of the guardian have ended. Another process then holds it.
constexpr milliseconds kPipeGrace{200};

}  // namespace

AgentShell::AgentShell(const Plan& plan, const AgentFiles& files, const BlockedSignals& signals, GuardianProcess guardian,
                       const MakeObservers& make_observers, std::optional<NetworkStart> network)
    : plan_(plan),
      signals_(io_, signals.descriptor()),
      console_(io_, STDOUT_FILENO, STDERR_FILENO),
      output_(io_, files_, console_, output_settings(plan, files)),
      reader_(io_, console_, output_, reader_hooks()),
      timers_{steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_)},
      pipe_timer_(io_),
      store_(io_,
             [this](int number, const channel::StoreReply& reply) {
               if (WorkerChannel* const channel = workers_.channel_of(number)) channel->send(reply);
             }),
      state_(agent_settings(plan, files, network ? AgentSettings::Mode::kMember : AgentSettings::Mode::kAlone)),
      inherited_environment_(environment_of_this_process()),
      standbys_(
          io_, files_, files.log_root, plan.nproc_per_node,
          [this](int number, const channel::FromWorker& message) { failure_.guarded([&] { on_message(number, message); }); },
          [this](int number, const std::string& why) { on_plain_start(number, why); },
          [this](int number) { failure_.guarded([&] { on_deaf_spare(number); }); }),
      workers_({io_, plan, inherited_environment_, output_, reader_, guardian_, standbys_}, worker_hooks()),
      stuck_(io_, stuck_timeout_of(process_environment()("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT")), stuck_hooks()),
      slow_stop_(io_, {}, slow_stop_hooks()),
      early_end_(io_, early_end_hooks()),
      hang_(io_, hang_settings(plan), hang_hooks()),
      failure_(io_, plan.shutdown_timeout, failure_hooks()),
      guardian_(
          io_, std::move(guardian), [this](const guardian::Notice& notice) { failure_.guarded([&] { on_notice(notice); }); },
          [this] { on_guardian_death(); }) {
  output_.set_unread([this](int rank, Stream stream) { return reader_.has_unread(rank, stream); });
  observers_ = make_observers(access());
  if (auto path = FileTimerServer::path_in(process_environment())) {
    file_timers_.emplace(io_, *std::move(path), [this](const TimerRequest& request) {
      if (const auto expired = whose_timer(request, workers_.pids())) feed(*expired);
    });
  }
  if (files.lock_fd >= 0) {
    run_directory_.emplace(io_, files_, plan.run_dir, files.lock_fd, plan.config ? to_json_text(*plan.config) : std::string(),
                           [this] {
                             publish(RunDirectoryRemoved{plan_.run_dir.string(), realtime_ns()});
                           });
  }
  if (network) join_job(*std::move(network));
}

void AgentShell::join_job(NetworkStart start) {
  files_.go_behind();  // file work must not delay the lease
  start.shell.node.member.next_number = state_.first_round();
  JobLink::Hooks hooks;
  hooks.feed = [this](const AgentEvent& event) { feed(event); };
  hooks.publish = [this](const RunEvent& event) { publish(event); };
  hooks.set_deadline = [this](std::optional<std::chrono::nanoseconds> since_boot) { guardian_.set_deadline(since_boot); };
  hooks.entrust = [this](const guardian::LastWord& word) { guardian_.entrust(word); };
  hooks.answer_worker = [this](int rank, const channel::StoreReply& reply) {
    if (rank < 0 || rank >= static_cast<int>(workers_.size())) return;
    workers_.tell(rank, reply);
  };
  job_ = std::make_unique<JobLink>(io_, std::move(start), plan_, std::move(hooks));
}

int AgentShell::run() {
  failure_.guarded([this] {
    wait_for_signals();
    feed(agent_event::Begin{});
    if (job_) job_->begin();
  });
  while (!exit_code_ && !failure_.guarded([this] { io_.run(); })) {
  }
  finish_files(console_, {&files_, job_ ? &job_->records() : nullptr});  // afterwards the report is complete
  return existing(exit_code_, "the agent's loop ended before the job");
}

// ---- its own failures ----

OwnFailure::Hooks AgentShell::failure_hooks() {
  return {.is_over = [this] { return exit_code_.has_value(); },
          .running = [this] { return workers_.running(); },
          .may_save = [this] { return !state_.finished(); },
          .save_and_stop =
              [this](const agent_event::AgentFailed& failure) {
                master_.let_go();  // frees a descriptor: the report needs one when they have run out
                feed(failure);
              },
          .end_at_once = [this](const agent_event::AgentFailed& failure) { end_by(failure); }};
}

// The console, its readers and the report get this end like any other. When the guardian ends, it kills the workers.
void AgentShell::end_by(const agent_event::AgentFailed& failure) {
  exit_code_ = failure.exit_code;
  io_.stop();
  workers_.close();
  master_.let_go();
  publish(RunEnded{failure.exit_code, failure.why, restart_count_, instant_now().realtime_ns});
}

// ---- events in: signals, the guardian, workers' channels, timers ----

void AgentShell::feed(const AgentEvent& event) {
  pending_.push_back(event);
  if (feeding_) return;  // the loop below, further up the stack, handles it
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
  if (stops_job(signal)) return stop_as_at(signal);
  // As process 1 ddprun inherits the orphans of `docker exec`.
  if (signal == SIGCHLD) return guardian::reap_orphans_of_others();
  if (signal == SIGWINCH) return workers_.terminal_resized();
  if (signal == SIGTSTP) return stop_with_workers(plan_, workers_, hang_, console_);
  // USR1 and USR2 are for scripts. ddptrain has no handlers for them, and would die.
  if (!train()) workers_.signal_all(signal);
}

void AgentShell::stop_as_at(int signal) {
  told_to_stop_ = true;
  feed(agent_event::SignalArrived{signal});
  if (exit_code_) io_.stop();
  if (swept_) round_may_be_over();
}

void AgentShell::on_notice(const guardian::Notice& notice) {
  using Kind = guardian::Notice::Kind;
  files_.go_behind();  // workers run from now on
  if (notice.kind == Kind::kStoreSays) return console_.line(Stream::kStderr, line_of_store(notice));
  if (notice.kind == Kind::kContinued) return on_continued(notice);
  if (notice.kind == Kind::kIsAwaited) return on_awaited_leftover(notice);
  if (notice.kind == Kind::kWasEnded) return on_ended_leftover(notice);
  if (notice.kind == Kind::kSignalled) return stops_job(notice.signal) ? stop_as_at(notice.signal) : void();
  if (notice.kind == Kind::kSwept) {
    swept_ = true;
    return round_may_be_over();
  }
  const std::optional<int> rank = workers_.rank_of(notice.worker);
  if (!rank) return on_standby_notice(notice);
  if (notice.kind == Kind::kStarted) {
    workers_.at(*rank).pid = notice.pid;
    publish(WorkerStarted{global_rank(*rank), *rank, notice.pid, notice.time_ns, workers_.was_standby(notice.worker)});
  } else {
    on_worker_end(*rank, notice);
  }
}

void AgentShell::on_worker_end(int rank, const guardian::Notice& notice) {
  const WorkerProcess& worker = workers_.ended(rank);
  if (notice.kind == guardian::Notice::Kind::kExited) {
    hang_.gone(rank);
    if (worker.channel) worker.channel->drain();  // its last messages must be handled before its end
    const bool failed = notice.code != 0 || notice.signal != 0;
    if (train() || failed) reader_.drain(rank);
    store_.forget(notice.worker);
  }
  if (notice.error != 0) {
    feed(agent_event::SpawnFailed{rank, notice.error, why_not_started(notice, plan_.command.at(0), files_), notice.time_ns});
    return;
  }
  agent_event::WorkerExited ended = how_worker_went(rank, notice);
  if (!train()) early_end_.ended(rank, ended.status.ok());
  if (!ended.status.ok()) add_what_it_left(ended, {output_, files_, plan_});
  if (notice.overdue != 0 && job_) ended.unanswered_s = job_->unanswered_s();
  feed(ended);
}

// Handles notices about a waiting standby. Ignores notices about a dismissed one.
void AgentShell::on_standby_notice(const guardian::Notice& notice) {
  using Kind = guardian::Notice::Kind;
  if (notice.kind == Kind::kExited) store_.forget(notice.worker);
  if (!standbys_.has(notice.worker)) return;
  if (notice.kind == Kind::kStarted) return standbys_.started(notice.worker, notice.pid);
  feed(how_standby_went(notice, standbys_.forget(notice.worker), plan_.command.at(0), files_));
}

void AgentShell::on_message(int number, const channel::FromWorker& message) {
  if (WorkerChannel* const channel = train() ? nullptr : workers_.channel_of(number)) {
    if (const pid_t speaker = channel->take_speaker(); speaker > 0) guardian_.note_speaker(number, speaker);
  }
  if (const auto* request = std::get_if<channel::StoreRequest>(&message)) {
    if (job_) {
      job_->ask_store(number, *request);
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
  switch (standbys_.heard(number, message)) {
    case StandbyProcesses::Heard::kIsReady:
      publish(standbys_.waits(number, instant_now().realtime_ns));
      return feed(agent_event::StandbyReady{number});
    case StandbyProcesses::Heard::kIsDeaf:
      return guardian_.signal(number, SIGKILL);
    case StandbyProcesses::Heard::kNothingNew:
      return;
  }
}

void AgentShell::on_worker_message(int rank, const channel::FromWorker& message) {
  if (std::holds_alternative<channel::StandbyReady>(message)) return;  // the standby had already been given its rank
  if (const auto* published = std::get_if<channel::CheckpointPublished>(&message); published && job_) {
    job_->note_checkpoint(published->step);
  }
  hang_.heard(rank, message);
  publish(WorkerSpoke{global_rank(rank), message, instant_now().realtime_ns});
  feed(agent_event::WorkerSaid{rank, message});
}

EarlyEnd::Hooks AgentShell::early_end_hooks() {
  return {.at_work = [this] { return state_.at_work(); },
          .noticed =
              [this](double seconds, std::vector<int> ended, std::vector<int> running) {
                for (int& rank : ended) rank = global_rank(rank);
                for (int& rank : running) rank = global_rank(rank);
                publish(WorkersLeft{seconds, std::move(ended), std::move(running), instant_now().realtime_ns});
              }};
}

StuckLook::Hooks AgentShell::stuck_hooks() {
  return {.workers = [this] { return workers_.pids(); },
          .found =
              [this](const agent_event::WorkerStuck& stuck) {
                feed(stuck);
                return !exit_code_;
              }};
}

SlowStop::Hooks AgentShell::slow_stop_hooks() {
  return {.workers = [this] { return workers_.pids(); },
          .slow =
              [this](double seconds, std::vector<StopIsSlow::Awaited> awaited) {
                for (StopIsSlow::Awaited& one : awaited) one.rank = global_rank(one.rank);
                publish(StopIsSlow{seconds, state_.first_failure(), std::move(awaited), instant_now().realtime_ns});
              },
          .cannot_be_killed = [this](const agent_event::WorkerStuck& stuck) { feed(stuck); },
          .interrupt = [this](int rank) { workers_.signal(rank, SIGINT); }};
}

OutputReader::Hooks AgentShell::reader_hooks() {
  return {.printed = [this](int rank) { on_output(rank); },
          .first = [this](const FirstOutput& event) { publish(event); },
          .ended = [this] { round_may_be_over(); },
          .goes_on = [this] { hang_.goes_on(); }};
}

RoundWorkers::Hooks AgentShell::worker_hooks() {
  RoundWorkers::Hooks hooks;
  hooks.said = [this](int number, const channel::FromWorker& message) {
    failure_.guarded([&] { on_message(number, message); });
  };
  hooks.channel_closed = [this](int rank, const std::string& why) {
    failure_.guarded([&] {
      if (!train()) return publish(no_protocol(global_rank(rank), why, instant_now().realtime_ns));
      on_worker_message(rank, channel::WorkerError{.message = "worker channel closed: " + why, .fatal = false});
    });
  };
  hooks.input_was_read = [this](const std::string& what) { publish(InputWasRead{what, instant_now().realtime_ns}); };
  return hooks;
}

HangInquiry::Hooks AgentShell::hang_hooks() {
  HangInquiry::Hooks hooks;
  hooks.matters = [this] { return state_.at_work() && !reader_.holds_back(); };
  hooks.workers = [this] { return workers_.pids(); };
  hooks.ask = [this](int rank) { workers_.tell(rank, channel::PositionRequest{}); };
  if (!train()) hooks.bytes_in_files = [this] { return output_.bytes_past_us(); };
  hooks.find_tool = [this](bool python) { return files_.ask([python] { return find_stack_tool(python); }); };
  hooks.found = [this](std::vector<HangFinding> findings) { feed(agent_event::HangFound{std::move(findings)}); };
  return hooks;
}

// The round is over when all of its processes have ended and all of their output is read.
void AgentShell::round_may_be_over() {
  if (!swept_) return;
  reader_.nobody_writes();
  if (!reader_.reading()) return end_round();
  const bool reader_is_slow = console_.is_behind(Stream::kStdout) || console_.is_behind(Stream::kStderr);
  if (output_.any_is_awaited() && reader_is_slow && !told_to_stop_) return;  // OutputReader calls this function again
  pipe_timer_.expires_after(kPipeGrace);
  pipe_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error && swept_) end_round();
  });
}

// ---- actions out: starts, signals, messages, timers, reports ----

void AgentShell::carry_out(const agent_action::StartRound& action) {
  restart_count_ = action.restart_count;
  facts_ = job_ ? facts_of(job_->release().budget.history) : action.facts;
  if (run_directory_) run_directory_->look();
  master_.take(plan_, job_.get(), guardian_);
  store_.clear();
  const auto ranks = ranks_of_node(plan_, release());
  output_.begin_round({action.round, action.restart_count, ranks});
  workers_.begin_round(ranks.size(), action.spares);
  if (file_timers_) file_timers_->forget_all();
  script_spoke_ = train() || plan_.standbys == 0;
  for (const RankAssignment& rank : ranks) workers_.start(worker_settings(rank, action.restart_count));
  if (!action.spares.empty()) boost::asio::post(io_, [this] { publish_taken(); });
  master_.serve_store(guardian_);
  stuck_.begin_round();
  slow_stop_.begin_round();
  early_end_.begin_round(static_cast<int>(ranks.size()));
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::ContinueRound& action) {
  restart_count_ = action.restart_count;
  if (run_directory_) run_directory_->look();
  master_.take(plan_, job_.get(), guardian_);
  output_.name_anew(ranks_of_node(plan_, release()));
  master_.serve_store(guardian_);
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::StartWorker& action) {
  restart_count_ = action.restart_count;
  facts_ = job_ ? facts_of(job_->release().budget.history) : action.facts;
  if (run_directory_) run_directory_->look();
  const auto ranks = ranks_of_node(plan_, release());
  workers_.clear_place(action.rank, {action.round, action.restart_count, ranks});
  workers_.start(worker_settings(of_rank(ranks, action.rank), action.restart_count));
  early_end_.began(action.rank);
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::TakeOver& action) {
  restart_count_ = action.restart_count;
  workers_.clear_place(action.rank, {action.round, action.restart_count, ranks_of_node(plan_, release())});
  workers_.take_over(action.rank, action.standby);
  const WorkerProcess& worker = workers_.at(action.rank);
  workers_.tell(
      action.rank,
      channel::AssignRank{.rank = global_rank(action.rank), .local_rank = action.rank, .restart_count = action.restart_count});
  // If the pid is 0, the guardian is still starting this worker, and its notice will contain the pid.
  if (worker.pid > 0)
    publish(WorkerStarted{global_rank(action.rank), action.rank, worker.pid, instant_now().realtime_ns, true});
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::StartStandby& action) {
  try {
    const auto ranks = ranks_of_node(plan_, release());
    workers_.start_standby(action.number, worker_settings(of_rank(ranks, 0), 0));
  } catch (const std::exception& error) {
    feed(agent_event::StandbyGone{.number = action.number, .message = error.what(), .time_ns = instant_now().realtime_ns});
  }
}

// Settings that all workers of the node share, except for their ranks.
WorkerSettings AgentShell::worker_settings(const RankAssignment& ranks, int restart_count) const {
  WorkerSettings settings = planned_settings(plan_, ranks);
  master_.tell(settings);
  settings.restart_count = restart_count;
  settings.facts = facts_;
  if (file_timers_) settings.timer_file = file_timers_->path();
  if (!job_) return settings;
  settings.generation = static_cast<int>(job_->release().id.round);
  settings.node_address = job_->own_address();
  return settings;
}

void AgentShell::carry_out(const agent_action::SendSignal& action) {
  const auto purpose = state_.at_work() ? GuardianLink::Purpose::kAny : GuardianLink::Purpose::kStops;
  for (const int rank : action.ranks) workers_.signal(rank, action.signal, purpose);
  if (!state_.at_work()) slow_stop_.stops();
  if (action.signal == SIGKILL) slow_stop_.killed(action.ranks);
  if (action.signal == SIGINT && !train()) slow_stop_.interrupted();
}

void AgentShell::carry_out(const agent_action::Sweep& action) {
  if (!guardian_.nothing_is_left()) return guardian_.sweep(sweep_order(action));
  boost::asio::post(io_, [this] {
    swept_ = true;
    round_may_be_over();
  });
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
  if (!output_.any_is_awaited() || told_to_stop_) return io_.stop();
  // The reader of the workers' output gets all of it.
  console_.when_at_most(Stream::kStdout, 0, [this] { console_.when_at_most(Stream::kStderr, 0, [this] { io_.stop(); }); });
}

}  // namespace ddprun
