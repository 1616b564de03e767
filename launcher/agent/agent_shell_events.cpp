// The part of AgentShell (agent_shell.hpp) that hears: signals, the guardian, workers' channels and output, clocks.
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>

#include "common/base/error.hpp"
#include "launcher/agent/agent_shell.hpp"
#include "launcher/output/worker_output_files.hpp"
#include "launcher/workers/error_file_reader.hpp"
#include "launcher/workers/exec_reason.hpp"

namespace ddprun {
namespace {

using boost::asio::posix::stream_descriptor;
using std::chrono::milliseconds;

// How long a pipe may stay open after everything below the guardian is gone: someone outside holds it.
constexpr milliseconds kPipeGrace{200};

}  // namespace

void AgentShell::feed(const AgentEvent& event) {
  pending_.push_back(event);
  if (feeding_) return;  // the loop below, further up the stack, takes it
  feeding_ = true;
  while (!pending_.empty()) {
    const AgentEvent next = std::move(pending_.front());
    pending_.pop_front();
    for (AgentAction& action : state_.on(next, instant_now())) {
      std::visit([this](auto& concrete) { carry_out(concrete); }, action);
    }
  }
  feeding_ = false;
}

void AgentShell::wait_for_signals() {
  signals_.async_wait(stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
    if (error) return;
    signalfd_siginfo info{};
    while (::read(signals_.native_handle(), &info, sizeof info) == static_cast<ssize_t>(sizeof info)) {
      on_signal(static_cast<int>(info.ssi_signo));
    }
    wait_for_signals();
  });
}

void AgentShell::on_signal(int signal) {
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

void AgentShell::on_notice(const guardian::Notice& notice) {
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
std::string AgentShell::why_not_started(const guardian::Notice& notice) const {
  const bool made = notice.kind == guardian::Notice::Kind::kExited;
  const auto stage = made ? static_cast<SpawnError::Stage>(notice.stage) : SpawnError::Stage::kExec;
  const std::string& program = plan_.command.at(0);
  const std::string reason =
      made && stage == SpawnError::Stage::kExec ? reason_of_exec_error(notice.error, program) : std::string();
  return describe(SpawnError{notice.worker, stage, notice.error}, program) + (reason.empty() ? "" : ": " + reason);
}

void AgentShell::on_worker_end(int rank, const guardian::Notice& notice) {
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
void AgentShell::on_standby_notice(const guardian::Notice& notice) {
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

void AgentShell::on_guardian_death() {
  throw InternalError(
      "the guardian process of this job died or was killed; all workers are stopped, run the job again to go on");
}

void AgentShell::on_message(int number, const channel::FromWorker& message) {
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

void AgentShell::on_standby_message(int number, const channel::FromWorker& message) {
  if (std::holds_alternative<channel::StandbyReady>(message)) {
    publish(StandbyWaits{standbys_.pid(number), instant_now().realtime_ns});
    feed(agent_event::StandbyReady{number});
  } else if (const auto* error = std::get_if<channel::WorkerError>(&message)) {
    standbys_.reported(number, error->message);
    if (!error->fatal) guardian_.signal(number, SIGKILL);  // the channel broke: it would never hear of its rank
  }
}

void AgentShell::on_worker_message(int rank, const channel::FromWorker& message) {
  if (std::holds_alternative<channel::StandbyReady>(message)) return;  // its rank was on the way already
  if (const auto* published = std::get_if<channel::CheckpointPublished>(&message); published && job_) {
    job_->note_checkpoint(published->step);
  }
  hang_.heard(rank, message);
  publish(WorkerSpoke{global_rank(rank), message, instant_now().realtime_ns});
  feed(agent_event::WorkerSaid{rank, message});
}

// A worker leads its session, and everything that it started and that did not leave is in it: so the session says whose timer
// this is, and a number that is somebody else's by now is nobody's.
void AgentShell::on_overdue_timer(const TimerRequest& request) {
  const pid_t session = ::getsid(static_cast<pid_t>(request.pid));
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (session <= 0 || workers_[rank].pid != session) continue;
    std::string message = "timer expired: '" + request.scope + "' was not done in time";
    if (request.pid != session) message += " (process " + std::to_string(request.pid) + ")";
    feed(agent_event::TimerExpired{static_cast<int>(rank), request.signal, std::move(message)});
  }
}

// The kernel tells nobody that a process sleeps so, hence the looking again and again; only when the variable asks for it.
void AgentShell::look_for_stuck_workers() {
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

HangInquiry::Hooks AgentShell::hang_hooks() {
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
void AgentShell::wait_for_output(int rank, Stream stream) {
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

void AgentShell::listen(int rank, Stream stream) {
  auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
  if (!pipe) return;
  pipe->async_wait(stream_descriptor::wait_read, [this, rank, stream](const boost::system::error_code& error) {
    if (error) return;
    const bool later = !output_.is_kept(rank, stream) && console_.is_behind(stream);  // others have filled it meanwhile
    if (later || read_output(rank, stream)) wait_for_output(rank, stream);
  });
}

// One chunk, so that a chatty worker does not keep the others waiting. False at the end of the stream.
bool AgentShell::read_output(int rank, Stream stream) {
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
void AgentShell::drain_output(int rank) {
  constexpr int kMostChunks = 64;
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    const auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
    int unread = 0;
    for (int i = 0; i < kMostChunks && pipe && ::ioctl(pipe->native_handle(), FIONREAD, &unread) == 0 && unread > 0; ++i) {
      read_output(rank, stream);
    }
  }
}

void AgentShell::end_output(int rank, Stream stream) {
  auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
  if (!pipe) return;
  pipe.reset();
  output_.end_of_stream(rank, stream);
}

// The round is over when every process of it is gone and everything they printed has been read.
void AgentShell::round_may_be_over() {
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

void AgentShell::end_round() {
  swept_ = false;
  pipe_timer_.cancel();
  hang_.end_round();
  close_workers();
  feed(agent_event::RoundSwept{});
}

void AgentShell::close_workers() {
  for (int rank = 0; rank < static_cast<int>(workers_.size()); ++rank) {
    WorkerProcess& worker = workers_[static_cast<std::size_t>(rank)];
    end_output(rank, Stream::kStdout);
    end_output(rank, Stream::kStderr);
    if (worker.channel) worker.channel->close();
  }
  standbys_.close();
}

}  // namespace ddprun
