// The imperative shell around AgentState. Descriptors, timers and the guardian become events; actions become calls. It decides
// only three things: how an action is carried out, when a round has ended and all its output is read, and that an unresponsive
// spare interpreter is killed (on_deaf_spare()). run_agent() makes it; one thread.
//
// An exception in this class or in its callees ends the job, with the code of an Error or else 89. The report contains the
// exception (own_failure.hpp). On one machine workers save and stop first, as after a signal. If that fails, they are killed
// immediately.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/check.hpp"
#include "common/system/file_queue.hpp"
#include "common/system/realtime.hpp"
#include "launcher/agent/agent.hpp"
#include "launcher/agent/blocked_signals.hpp"
#include "launcher/agent/master_endpoint.hpp"
#include "launcher/agent/output_reader.hpp"
#include "launcher/agent/own_failure.hpp"
#include "launcher/agent/round_workers.hpp"
#include "launcher/agent/run_directory_watch.hpp"
#include "launcher/agent/slow_stop.hpp"
#include "launcher/decide/agent_state.hpp"
#include "launcher/guardian/guardian_link.hpp"
#include "launcher/hang/hang_inquiry.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/network/job_link.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/workers/early_end.hpp"
#include "launcher/workers/file_timer_server.hpp"
#include "launcher/workers/standby_processes.hpp"
#include "launcher/workers/store_server.hpp"
#include "launcher/workers/stuck_look.hpp"
#include "launcher/workers/stuck_workers.hpp"
#include "launcher/workers/worker_channel.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "launcher/workers/worker_pipes.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

inline Instant instant_now() {
  return {std::chrono::steady_clock::now(), realtime_ns()};
}

class AgentShell {
 public:
  AgentShell(const Plan& plan, const AgentFiles& files, const BlockedSignals& signals, GuardianProcess guardian,
             const MakeObservers& make_observers, std::optional<NetworkStart> network);
  int run();
  // Call it after run(). The guardian then ends, and the destructor waits for it.
  void say_farewell() { guardian_.say_farewell(); }

 private:
  AgentAccess access() {
    return {io_,
            console_,
            files_,
            [this](std::string_view report) { guardian_.keep_report(report); },
            [this](int signal) { failure_.guarded([this, signal] { stop_as_at(signal); }); },
            [this](const RunEvent& event) { publish(event); },
            [this] { return job_.get(); }};
  }
  OwnFailure::Hooks failure_hooks();
  void end_by(const agent_event::AgentFailed& failure);

  // events in
  void feed(const AgentEvent& event);
  void wait_for_signals();
  void on_signal(int signal);
  void stop_as_at(int signal);
  bool stops_job(int signal) const {
    return std::ranges::find(plan_.signals_to_handle, signal) != plan_.signals_to_handle.end();
  }
  void on_notice(const guardian::Notice& notice);
  void on_continued(const guardian::Notice& notice) {
    const std::optional<int> rank = workers_.rank_of(notice.worker);
    const double stopped_s = static_cast<double>(notice.stopped_us) / 1e6;
    if (rank) publish(WorkerContinued{global_rank(*rank), stopped_s, instant_now().realtime_ns});
  }
  // The worker's own process has ended, and one of its leftovers continues the work. From now on /proc and stacks are read for
  // that process.
  void on_awaited_leftover(const guardian::Notice& notice) {
    const std::optional<int> rank = workers_.rank_of(notice.worker);
    if (!rank) return;
    workers_.at(*rank).pid = notice.pid;
    publish(LeftoversFound{.what = LeftoversFound::What::kAwaited,
                           .rank = global_rank(*rank),
                           .processes = {std::string(notice.text.data())},
                           .time_ns = notice.time_ns});
  }
  // Leftovers that are ended together are reported in one line.
  void on_ended_leftover(const guardian::Notice& notice) {
    if (ended_leftovers_.processes.empty()) boost::asio::post(io_, [this] { say_ended_leftovers(); });
    ended_leftovers_.time_ns = notice.time_ns;
    ended_leftovers_.processes.emplace_back(notice.text.data());
  }
  void say_ended_leftovers() {
    if (!ended_leftovers_.processes.empty()) publish(std::exchange(ended_leftovers_, {}));
  }
  // The workers have died with the guardian.
  void on_guardian_death() {
    failure_.end_at_once(
        {static_cast<int>(ExitCode::kInternal),
         "ddprun's second process, job-guardian, died or was killed, and all workers with it: run the job again to continue",
         {}});
  }
  void on_worker_end(int rank, const guardian::Notice& notice);
  void on_standby_notice(const guardian::Notice& notice);
  void on_message(int number, const channel::FromWorker& message);
  void on_standby_message(int number, const channel::FromWorker& message);
  void on_worker_message(int rank, const channel::FromWorker& message);
  OutputReader::Hooks reader_hooks();
  RoundWorkers::Hooks worker_hooks();
  void on_output(int rank) {
    hang_.printed(rank);
    if (!std::exchange(script_spoke_, true)) feed(agent_event::ScriptSpeaks{});
  }
  void on_plain_start(int number, const std::string& why) {
    const std::string rank = std::to_string(global_rank(workers_.rank_of(number).value_or(0)));
    console_.line(Stream::kStderr, "ddprun: rank " + rank + " starts without its spare interpreter: " + why);
  }
  // The spare does not answer, so it is killed. A new interpreter takes its rank, as if there had been no spare.
  void on_deaf_spare(int number) {
    const std::optional<int> rank = workers_.rank_of(number);
    if (!rank || workers_.at(*rank).number != number || workers_.at(*rank).pid <= 0 || !state_.at_work()) return;
    const std::string pid = std::to_string(workers_.at(*rank).pid);
    on_plain_start(number, "that one, pid " + pid + ", has not answered for 5 s, and is killed");
    guardian_.signal(number, SIGKILL);
    feed(agent_event::SpareUnresponsive{*rank});
  }
  // Publishes the workers that were spare interpreters. Called when all observers have got the start of the round.
  void publish_taken() {
    for (const auto& [rank, pid] : workers_.taken_over())
      publish(WorkerStarted{global_rank(rank), rank, pid, instant_now().realtime_ns, true});
  }
  StuckLook::Hooks stuck_hooks();
  SlowStop::Hooks slow_stop_hooks();
  EarlyEnd::Hooks early_end_hooks();
  HangInquiry::Hooks hang_hooks();
  // The watch for hangs starts again for all workers. Workers that kept their state must join a group again too.
  void watch_for_hangs() {
    hang_.begin_round({.workers = static_cast<int>(workers_.size()),
                       .rank_offset = global_rank(0),
                       .many_nodes = job_ && job_->release().nodes > 1});
  }
  void round_may_be_over();
  void end_round() {
    swept_ = false;
    say_ended_leftovers();
    slow_stop_.begin_round();
    pipe_timer_.cancel();
    hang_.end_round();
    workers_.close();
    feed(agent_event::RoundSwept{});
  }

  // actions out
  void carry_out(const agent_action::StartRound& action);
  void carry_out(const agent_action::ContinueRound& action);
  void carry_out(const agent_action::StartWorker& action);
  void carry_out(const agent_action::TakeOver& action);
  void carry_out(const agent_action::StartStandby& action);
  void carry_out(const agent_action::DismissStandbys&) { standbys_.dismiss(guardian_); }
  void carry_out(const agent_action::Tell& action) {
    for (const int rank : action.ranks) {
      workers_.tell(rank, action.message);
      // A worker that saves on this order may run under a start script. The guardian must know of the stop, since the script
      // may end first.
      if (std::holds_alternative<channel::Stop>(action.message)) workers_.signal(rank, 0, GuardianLink::Purpose::kStops);
    }
  }
  void carry_out(const agent_action::SendSignal& action);
  void carry_out(const agent_action::Sweep& action);
  void carry_out(const agent_action::SetTimer& action);
  void carry_out(const agent_action::CancelTimer& action) { timer(action.timer).cancel(); }
  void carry_out(agent_action::Emit& action);
  void carry_out(const agent_action::Finish& action);
  // For a member only.
  void carry_out(const agent_action::ReportFailure& action) { job().carry_out(action); }
  void carry_out(const agent_action::ReportRoundOver& action) {
    // Workers of other nodes may still need the store of this node when its own workers are done.
    if (action.how != agent_action::ReportRoundOver::How::kDone) master_.end_store(guardian_);
    job().carry_out(action);
  }
  void carry_out(const agent_action::ReportSignal& action) { job().carry_out(action); }
  void carry_out(const agent_action::ReportSteps& action) { job().carry_out(action); }

  void join_job(NetworkStart start);
  JobLink& job() { return existing(job_, "a job on one machine has no coordinator to tell"); }
  const rendezvous::Release* release() const { return job_ ? &job_->release() : nullptr; }
  int global_rank(int rank) const { return job_ ? job_->release().rank_offset + rank : rank; }
  WorkerSettings worker_settings(const RankAssignment& ranks, int restart_count) const;
  void publish(const RunEvent& event) {
    for (const auto& observer : observers_) observer->on(event);
  }
  boost::asio::steady_timer& timer(AgentTimer which) { return timers_[static_cast<std::size_t>(which)]; }
  bool train() const { return plan_.kind == Plan::Kind::kTrain; }

  const Plan& plan_;
  boost::asio::io_context io_{1};
  // Runs all work on files in the run directory or at users' paths while workers run.
  FileQueue files_{[this](FileQueue::Work then) { boost::asio::post(io_, std::move(then)); }, FileQueue::Begins::kAtOnce};
  boost::asio::posix::stream_descriptor signals_;
  ConsoleWriter console_;
  WorkerOutput output_;
  OutputReader reader_;
  std::vector<std::unique_ptr<RunObserver>> observers_;
  std::array<boost::asio::steady_timer, 6> timers_;
  boost::asio::steady_timer pipe_timer_;
  StoreServer store_;
  AgentState state_;
  std::vector<std::string> inherited_environment_;
  MasterEndpoint master_;
  StandbyProcesses standbys_;
  RoundWorkers workers_;
  std::deque<AgentEvent> pending_;  // events that arrived during the handling of another one
  bool feeding_ = false;
  bool swept_ = false;         // the guardian has swept this round
  bool script_spoke_ = false;  // in this round
  bool told_to_stop_ = false;  // a signal came: the agent no longer waits for slow readers
  int restart_count_ = 0;
  RestartFacts facts_;              // about the running round
  LeftoversFound ended_leftovers_;  // leftovers that were ended but are not published yet
  std::optional<FileTimerServer> file_timers_;
  StuckLook stuck_;
  SlowStop slow_stop_;
  EarlyEnd early_end_;
  HangInquiry hang_;
  OwnFailure failure_;
  std::optional<RunDirectoryWatch> run_directory_;  // set if this agent holds the directory's lock
  std::optional<int> exit_code_;
  std::unique_ptr<JobLink> job_;  // set on many machines
  // The last member: its destructor waits for the guardian while everything else still exists.
  GuardianLink guardian_;
};

}  // namespace ddprun
