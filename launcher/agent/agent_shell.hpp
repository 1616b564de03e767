// The imperative shell around AgentState, which is a pure state machine. It converts signals, messages and expired timers into
// events, and carries out the actions that AgentState returns. It decides only three things itself: how an action is carried
// out, when a round (one start of all workers) has ended, and that an unresponsive spare interpreter is killed
// (on_unresponsive()). run_agent() creates it; everything runs on one thread. Its members call it through small interfaces
// (HangMonitor::Agent, JobLink::Agent and others).
//
// An exception in this class or in its callees ends the job. If the exception is an Error, it contains the exit code of the
// job; for any other exception the exit code is 89. The report contains the exception (internal_error_handler.hpp). On one
// machine the workers save and stop first, as after a signal. If saving fails, they are killed immediately.
#pragma once

#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <deque>
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
#include "launcher/agent/internal_error_handler.hpp"
#include "launcher/agent/node_ranks.hpp"
#include "launcher/agent/output_reader.hpp"
#include "launcher/agent/run_directory_watch.hpp"
#include "launcher/agent/slow_stop.hpp"
#include "launcher/agent/worker_supervisor.hpp"
#include "launcher/agent_state/agent_state.hpp"
#include "launcher/file_timers/file_timer_server.hpp"
#include "launcher/guardian/guardian_link.hpp"
#include "launcher/hang/hang_monitor.hpp"
#include "launcher/leftovers/stuck_monitor.hpp"
#include "launcher/leftovers/stuck_workers.hpp"
#include "launcher/machine/ports.hpp"
#include "launcher/network/job_link.hpp"
#include "launcher/output/console_writer.hpp"
#include "launcher/output/worker_output.hpp"
#include "launcher/tcp_store/master_endpoint.hpp"
#include "launcher/workers/early_end.hpp"
#include "launcher/workers/standby_processes.hpp"
#include "launcher/workers/store_server.hpp"
#include "launcher/workers/worker_channel.hpp"
#include "launcher/workers/worker_environment.hpp"
#include "launcher/workers/worker_pipes.hpp"
#include "rendezvous/protocol/ranks.hpp"

namespace ddprun {

inline Instant instant_now() {
  return {std::chrono::steady_clock::now(), realtime_ns()};
}

class AgentShell final : private InternalErrorHandler::Agent,
                         private GuardianLink::Agent,
                         private JobLink::Agent,
                         private OutputReader::Agent,
                         private WorkerSupervisor::Agent,
                         private StandbyProcesses::Agent,
                         private EarlyEnd::Agent,
                         private HangMonitor::Agent,
                         private SlowStop::Agent,
                         private StuckMonitor::Agent {
 public:
  AgentShell(const Plan& plan, const AgentFiles& files, const BlockedSignals& signals, GuardianProcess guardian,
             const MakeObservers& make_observers, std::optional<NetworkStart> network);
  int run();
  // Call this after run(). The guardian then exits, and this object's destructor waits for its exit.
  void shut_down_cleanly() { guardian_.shut_down_cleanly(); }

 private:
  // ---- used by several members ----
  void feed(const AgentEvent& event) override;
  void publish(const RunEvent& event) override;
  bool at_work() const override { return state_.at_work(); }
  bool is_over() const override { return exit_code_.has_value(); }
  std::vector<pid_t> worker_pids() const override { return workers_.pids(); }

  // ---- the agent's own failures ----
  bool may_save() const override { return !state_.finished(); }
  std::vector<int> running_ranks() const override { return workers_.running(); }
  void save_and_stop(const agent_event::AgentFailed& failure) override;
  void end_by(const agent_event::AgentFailed& failure) override;

  // ---- incoming events: signals, the guardian, workers, the other nodes ----
  void wait_for_signals();
  void on_signal(int signal);
  void stop_as_on_signal(int signal);
  bool stops_job(int signal) const;
  void on_notice(const guardian::Notice& notice) override {
    failure_.guarded([&] { handle(notice); });
  }
  void on_guardian_death() override;
  void handle(const guardian::Notice& notice);
  void on_continued(const guardian::Notice& notice);
  void on_awaited_leftover(const guardian::Notice& notice);
  void on_ended_leftover(const guardian::Notice& notice);
  void publish_ended_leftovers();
  void on_worker_end(int rank, const guardian::Notice& notice);
  void on_standby_notice(const guardian::Notice& notice);
  void on_message(int number, const channel::FromWorker& message) override {
    failure_.guarded([&] { handle(number, message); });
  }
  void handle(int number, const channel::FromWorker& message);
  void on_standby_message(int number, const channel::FromWorker& message);
  void on_worker_message(int rank, const channel::FromWorker& message);
  void on_channel_closed(int rank, const std::string& why) override;
  void on_cold_start(int number, const std::string& why) override;
  void on_unresponsive(int number) override;
  void on_output(int rank) override;
  void on_output_resumed() override { hang_.resumed(); }
  void check_round_end() override;
  void end_round();
  void set_deadline(std::optional<std::chrono::nanoseconds> since_boot) override { guardian_.set_deadline(since_boot); }
  void set_death_notice(const guardian::DeathNotice& notice) override { guardian_.set_death_notice(notice); }
  void answer_worker(int rank, const channel::StoreReply& reply) override;

  // ---- events that the monitors report ----
  void report_early_end(double seconds, std::vector<int> ended, std::vector<int> running) override;
  void report_slow_stop(double seconds, std::vector<StopIsSlow::Awaited> awaited) override;
  void interrupt(int rank) override { workers_.signal(rank, SIGINT); }
  bool progress_matters() const override { return at_work() && !reader_.is_throttling(); }
  void query_position(int rank) override { workers_.send(rank, channel::PositionRequest{}); }
  std::optional<std::uintmax_t> bytes_in_files() const override { return output_.direct_file_bytes(); }
  std::optional<StackTool> find_tool(bool python) override;
  void report_hang(std::vector<HangFinding> findings) override { feed(agent_event::HangFound{std::move(findings)}); }

  // ---- outgoing actions ----
  void carry_out(const agent_action::StartRound& action);
  void carry_out(const agent_action::ContinueRound& action);
  void carry_out(const agent_action::StartWorker& action);
  void carry_out(const agent_action::TakeOver& action);
  void carry_out(const agent_action::StartStandby& action);
  void carry_out(const agent_action::DismissStandbys&) { standbys_.dismiss(guardian_); }
  void carry_out(const agent_action::SendMessage& action);
  void carry_out(const agent_action::SendSignal& action);
  void carry_out(const agent_action::Sweep& action);
  void carry_out(const agent_action::SetTimer& action);
  void carry_out(const agent_action::CancelTimer& action) { timer(action.timer).cancel(); }
  void carry_out(agent_action::Emit& action);
  void carry_out(const agent_action::Finish& action);
  // Only the agent of a multi-node job receives these actions, and only it has a JobLink.
  void carry_out(const agent_action::ReportFailure& action) { job().carry_out(action); }
  void carry_out(const agent_action::ReportRoundOver& action);
  void carry_out(const agent_action::ReportSignal& action) { job().carry_out(action); }
  void carry_out(const agent_action::ReportSteps& action) { job().carry_out(action); }
  // Prepares MASTER_ADDR, MASTER_PORT and the store's sockets for the round that is starting. Returns the ranks of this node's
  // workers.
  std::vector<RankAssignment> prepare_round(int restart_count);
  std::vector<RankAssignment> ranks() const { return ranks_of_node(plan_, job_ ? &job_->release() : nullptr); }
  WorkerSettings worker_settings(const RankAssignment& ranks, int restart_count) const;
  void publish_start(int rank, std::int64_t time_ns, bool standby);
  void watch_for_hangs();

  AgentAccess access();
  JobLink& job() { return existing(job_, "expected a job on several machines: a job on a single machine has no coordinator"); }
  int global_rank(int rank) const { return job_ ? job_->release().rank_offset + rank : rank; }
  std::vector<int> global_ranks(std::vector<int> ranks) const;
  boost::asio::steady_timer& timer(AgentTimer which) { return timers_[static_cast<std::size_t>(which)]; }
  bool train() const { return plan_.trains(); }

  const Plan& plan_;
  boost::asio::io_context io_{1};
  // Does file work on its own thread while workers run, so that a slow file system does not block the agent.
  FileQueue files_{[this](FileQueue::Work then) { boost::asio::post(io_, std::move(then)); }, FileQueue::Mode::kInline};
  boost::asio::posix::stream_descriptor signals_;
  ConsoleWriter console_;
  WorkerOutput output_;
  OutputReader reader_;
  AgentObservers observers_;
  std::array<boost::asio::steady_timer, 6> timers_;
  boost::asio::steady_timer pipe_timer_;
  StoreServer store_;
  AgentState state_;
  std::vector<std::string> inherited_environment_;
  MasterEndpoint master_;
  StandbyProcesses standbys_;
  WorkerSupervisor workers_;
  std::deque<AgentEvent> pending_;  // events that arrived while feed() handled an earlier event
  bool feeding_ = false;
  bool swept_ = false;  // all processes of the round have exited (the guardian has sent kSwept)
  // True after a worker has printed in this round. Spares load only after this output. Also true if there are no spares.
  bool script_printed_ = false;
  // True after a signal has requested the end of the job. From then on the agent does not wait for a slow reader of its
  // output.
  bool stop_requested_ = false;
  int restart_count_ = 0;
  RestartFacts facts_;  // cause of the last restart and number of OOM kills, for the environment of scripts
  // Leftover processes that the guardian has ended, collected for the next LeftoversFound event.
  LeftoversFound ended_leftovers_;
  std::optional<FileTimerServer> file_timers_;
  StuckMonitor stuck_;
  SlowStop slow_stop_;
  EarlyEnd early_end_;
  HangMonitor hang_;
  InternalErrorHandler failure_;
  std::optional<RunDirectoryWatch> run_directory_;  // set if this agent has locked the run directory
  std::optional<int> exit_code_;
  std::unique_ptr<JobLink> job_;  // null in a job on one machine
  // This must be the last member, so that it is destroyed first: its destructor waits for the guardian, which needs the other
  // members.
  GuardianLink guardian_;
};

}  // namespace ddprun
