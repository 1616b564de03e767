#include "launcher/agent/worker_supervisor.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <system_error>
#include <utility>

#include "common/base/check.hpp"
#include "common/base/error.hpp"
#include "common/system/realtime.hpp"
#include "launcher/plan/argument_template.hpp"

namespace ddprun {

using boost::asio::posix::stream_descriptor;

namespace {

std::uint64_t inode_of(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 ? info.st_ino : 0;
}

}  // namespace

void WorkerSupervisor::begin_round(std::size_t workers, std::vector<int> spares) {
  if (const auto gone = workers_.empty() ? std::nullopt : input_.missing_input())
    agent_.publish(InputWasRead{*gone, realtime_ns()});
  workers_.clear();
  workers_.resize(workers);
  parts_.reader.begin_round(workers);
  taken_over_.clear();
  spares_.clear();
  for (std::size_t rank = 0; rank < spares.size(); ++rank) spares_[static_cast<int>(rank)] = spares[rank];
}

void WorkerSupervisor::start(WorkerSettings settings) {
  const int rank = settings.ranks.local_rank;
  WorkerProcess& worker = at(rank);
  worker.number = rank;
  parts_.output.begin_worker(rank);
  Ends standard_output = output_of(rank, Stream::kStdout);
  Ends standard_error = output_of(rank, Stream::kStderr);
  Ends channel = channel_pair();

  const Plan& plan = parts_.plan;
  const auto index = static_cast<std::size_t>(rank);
  const WorkerPlace place = index < plan.places.size() ? plan.places[index] : WorkerPlace{};
  settings.error_file = parts_.output.error_file(rank).string();
  settings.only_device = place.only_device;
  settings.snapshots = snapshots_.path();
  if (!train()) settings.channel_inode = inode_of(channel.workers.get());
  const SpawnRequest request{.arguments = train() ? plan.command : fill_arguments(plan.command, rank),
                             .environment = worker_environment(parts_.inherited_environment, settings),
                             .cpus = place.cpus,
                             .shares_input = plan.input == WorkersInput::kOurs};
  try {
    const SpawnDescriptors descriptors{.standard_output = standard_output.workers.get(),
                                       .standard_error = standard_error.workers.get(),
                                       .channel = channel.workers.get()};
    const auto spare = spares_.extract(rank);
    if (spare) worker.pid = parts_.standbys.hand_over(spare.mapped(), parts_.guardian, request, descriptors);
    if (worker.pid > 0) {
      worker.number = spare.mapped();
      taken_over_[worker.number] = rank;
    } else {
      parts_.guardian.spawn(rank, request, descriptors);
    }
  } catch (const std::system_error& error) {
    throw refused_by_system("cannot start a worker", error.code().value());
  }
  worker.spawn_pending = true;

  const auto read = [&](Stream stream, Ends& ends) {
    if (ends.ours.get() < 0) return;  // the worker writes directly to its log file
    parts_.reader.adopt(rank, stream, std::make_unique<stream_descriptor>(parts_.io, ends.ours.release()));
  };
  read(Stream::kStdout, standard_output);
  read(Stream::kStderr, standard_error);
  worker.channel = std::make_shared<WorkerChannel>(
      parts_.io, channel.ours.release(), [this, rank](const channel::FromWorker& message) { agent_.on_message(rank, message); },
      [this, rank](const std::string& why) { agent_.on_channel_closed(rank, why); });
  worker.channel->start();
}

// Creates the worker's end and the agent's end of an output stream. The worker writes to a file, or to a terminal or pipe that
// the agent reads.
Ends WorkerSupervisor::output_of(int rank, Stream stream) const {
  if (const int file = parts_.output.take_descriptor(rank, stream); file >= 0) return {Descriptor(), Descriptor(file)};
  if (const auto size = parts_.output.terminal_size(rank, stream)) {
    if (Ends terminal = terminal_pair(*size); terminal.ours.get() >= 0) return terminal;
  }
  return output_pipe();
}

void WorkerSupervisor::free_rank(int rank, const OutputRound& round) {
  WorkerProcess& worker = at(rank);
  parts_.reader.end(rank);
  if (worker.channel) worker.channel->close();
  taken_over_.erase(worker.number);
  worker = WorkerProcess{};
  parts_.output.begin_replacement(rank, round);
}

void WorkerSupervisor::take_over(int rank, int standby) {
  parts_.output.begin_worker(rank);
  WorkerProcess& worker = at(rank);
  worker = parts_.standbys.take(standby);
  taken_over_[standby] = rank;
  for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
    auto& pipe = worker.pipes[static_cast<std::size_t>(stream)];
    if (pipe) parts_.reader.adopt(rank, stream, std::move(pipe));
  }
}

void WorkerSupervisor::start_standby(int number, WorkerSettings settings) {
  settings.standby = true;
  SpawnRequest request{.arguments = parts_.plan.command,
                       .environment = worker_environment(parts_.inherited_environment, settings)};
  if (!train()) {
    request.spare = true;
    request.shares_input = parts_.plan.input == WorkersInput::kOurs;
    request.arguments = spare_command(fill_arguments(parts_.plan.command, 0));
    make_spare(request.environment, parts_.plan.spare_hook, parts_.plan.preload);
    return parts_.standbys.start_spare(number, parts_.guardian, request);
  }
  request.arguments.insert(request.arguments.begin() + 1, "--standby");
  parts_.standbys.start(number, parts_.guardian, request);
}

void WorkerSupervisor::close() {
  for (int rank = 0; rank < static_cast<int>(workers_.size()); ++rank) {
    parts_.reader.end(rank);
    if (const auto& channel = at(rank).channel) channel->close();
  }
  if (train()) parts_.standbys.close();
}

std::vector<pid_t> WorkerSupervisor::pids() const {
  std::vector<pid_t> pids;
  for (const WorkerProcess& worker : workers_) pids.push_back(worker.pid);
  return pids;
}

const WorkerProcess& WorkerSupervisor::ended(int rank) {
  at(rank).spawn_pending = false;
  at(rank).pid = 0;
  return at(rank);
}

std::vector<int> WorkerSupervisor::running() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].spawn_pending || workers_[rank].pid > 0) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void WorkerSupervisor::send(int rank, const channel::FromAgent& message) const {
  if (const auto& channel = of_rank(workers_, rank).channel) channel->send(message);
}

void WorkerSupervisor::signal(int rank, int signal, GuardianLink::Purpose purpose) const {
  parts_.guardian.signal(of_rank(workers_, rank).number, signal, purpose);
}

void WorkerSupervisor::signal_all(int signal) const {
  for (const WorkerProcess& worker : workers_) parts_.guardian.signal(worker.number, signal);
}

void WorkerSupervisor::terminal_resized() const {
  bool any = false;
  for (int rank = 0; rank < static_cast<int>(workers_.size()); ++rank) {
    for (const Stream stream : {Stream::kStdout, Stream::kStderr}) {
      const auto size = parts_.output.terminal_size(rank, stream);
      if (size && parts_.reader.resize(rank, stream, *size)) any = true;
    }
  }
  if (any) signal_all(SIGWINCH);
}

std::optional<int> WorkerSupervisor::rank_of(int number) const {
  if (number < parts_.plan.nproc_per_node) return number;
  const auto found = taken_over_.find(number);
  return found == taken_over_.end() ? std::nullopt : std::optional(found->second);
}

std::map<int, pid_t> WorkerSupervisor::taken_over() const {
  std::map<int, pid_t> processes;
  for (const auto& [number, rank] : taken_over_) {
    if (const pid_t pid = of_rank(workers_, rank).pid; pid > 0) processes[rank] = pid;
  }
  return processes;
}

WorkerChannel* WorkerSupervisor::channel_of(int number) const {
  const std::optional<int> rank = rank_of(number);
  return rank ? of_rank(workers_, *rank).channel.get() : parts_.standbys.channel(number);
}

}  // namespace ddprun
