// The part of AgentShell (agent_shell.hpp) that does what the machine says: starts, signals, tells, waits, reports.
#include <system_error>

#include "common/base/error.hpp"
#include "common/system/host_name.hpp"
#include "launcher/agent/agent_shell.hpp"
#include "launcher/output/worker_output_files.hpp"
#include "launcher/plan/argument_template.hpp"
#include "launcher/workers/error_file_reader.hpp"

namespace ddprun {
namespace {

using boost::asio::posix::stream_descriptor;

}  // namespace

void AgentShell::carry_out(const agent_action::StartRound& action) {
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

void AgentShell::carry_out(const agent_action::ContinueRound& action) {
  restart_count_ = action.restart_count;
  if (run_directory_) run_directory_->look();
  take_master_port();
  output_.name_anew(ranks_here());
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::StartWorker& action) {
  clear_place(action.rank, action.round, action.restart_count);
  start_worker(ranks_here()[static_cast<std::size_t>(action.rank)], action.restart_count);
  watch_for_hangs();
}

void AgentShell::carry_out(const agent_action::TakeOver& action) {
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
  if (worker.pid > 0)
    publish(WorkerStarted{global_rank(action.rank), action.rank, worker.pid, instant_now().realtime_ns, true});
  watch_for_hangs();
}

// Of a worker that is gone, for its successor.
void AgentShell::clear_place(int rank, int round, int restart_count) {
  restart_count_ = restart_count;
  WorkerProcess& worker = workers_[static_cast<std::size_t>(rank)];
  end_output(rank, Stream::kStdout);
  end_output(rank, Stream::kStderr);
  if (worker.channel) worker.channel->close();
  ranks_taken_over_.erase(worker.number);
  worker = WorkerProcess{};
  output_.begin_successor(rank, {round, restart_count, ranks_here()});
}

void AgentShell::carry_out(const agent_action::StartStandby& action) {
  WorkerSettings settings = worker_settings(ranks_here().front(), 0);
  settings.standby = true;
  SpawnRequest request{.arguments = plan_.command, .environment = worker_environment(inherited_environment_, settings)};
  request.arguments.insert(request.arguments.begin() + 1, "--standby");
  try {
    standbys_.start(action.number, guardian_, request);
  } catch (const std::exception& error) {
    feed(agent_event::StandbyGone{.number = action.number, .message = error.what(), .time_ns = instant_now().realtime_ns});
  }
}

std::optional<int> AgentShell::rank_of(int number) const {
  if (number < plan_.nproc_per_node) return number;
  const auto found = ranks_taken_over_.find(number);
  return found == ranks_taken_over_.end() ? std::nullopt : std::optional(found->second);
}

WorkerChannel* AgentShell::channel_of(int number) const {
  const std::optional<int> rank = rank_of(number);
  return rank ? workers_[static_cast<std::size_t>(*rank)].channel.get() : standbys_.channel(number);
}

// All of them begin anew, those that kept their state as well: they join the group again.
void AgentShell::watch_for_hangs() {
  hang_.begin_round({.workers = static_cast<int>(workers_.size()),
                     .rank_offset = global_rank(0),
                     .many_nodes = job_ && job_->release().nodes > 1});
}

void AgentShell::take_master_port() {
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

std::vector<RankAssignment> AgentShell::ranks_here() const {
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
WorkerSettings AgentShell::worker_settings(const RankAssignment& ranks, int restart_count) const {
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

void AgentShell::start_worker(const RankAssignment& ranks, int restart_count) {
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

Ends AgentShell::output_of(int rank, Stream stream) {
  const int file = output_.take_descriptor(rank, stream);
  return file >= 0 ? Ends{Descriptor(), Descriptor(file)} : output_pipe();
}

void AgentShell::carry_out(const agent_action::Tell& action) {
  for (const int rank : action.ranks) {
    if (const auto& channel = workers_[static_cast<std::size_t>(rank)].channel) channel->send(action.message);
  }
}

void AgentShell::carry_out(const agent_action::SendSignal& action) {
  for (const int rank : action.ranks) guardian_.signal(workers_[static_cast<std::size_t>(rank)].number, action.signal);
}

void AgentShell::carry_out(const agent_action::Sweep& action) {
  if (!guardian_.nothing_is_left()) return guardian_.sweep(action.patient);
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

void AgentShell::carry_out(const agent_action::CancelTimer& action) {
  timer(action.timer).cancel();
}

void AgentShell::carry_out(agent_action::Emit& action) {
  if (auto* failed = std::get_if<RoundFailed>(&action.event)) {
    add_evidence(failed->first);
    for (Failure& failure : failed->consequences) add_evidence(failure);
    if (failed->decision == RoundFailed::Decision::kGiveUp) hand_on(failed->first);
  }
  publish(action.event);
}

void AgentShell::carry_out(const agent_action::Finish& action) {
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
void AgentShell::add_evidence(Failure& failure) const {
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
void AgentShell::hand_on(const Failure& first) const {
  constexpr std::string_view kName = "TORCHELASTIC_ERROR_FILE=";
  if (first.error_file.empty()) return;
  for (const std::string& variable : inherited_environment_) {
    if (!variable.starts_with(kName) || variable.size() == kName.size()) continue;
    const int code = !first.status ? 0 : first.status->signal != 0 ? -first.status->signal : first.status->code;
    copy_error_file(first.error_file, variable.substr(kName.size()), code);
    return;
  }
}

void AgentShell::publish(const RunEvent& event) {
  for (const auto& observer : observers_) observer->on(event);
}

}  // namespace ddprun
