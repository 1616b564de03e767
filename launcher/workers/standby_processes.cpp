#include "launcher/workers/standby_processes.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include "common/base/check.hpp"
#include "common/base/overloaded.hpp"
#include "common/channel/version.hpp"
#include "common/system/write_all.hpp"
#include "launcher/output/worker_output_files.hpp"

namespace ddprun {

using boost::asio::posix::stream_descriptor;

void StandbyProcesses::start(int number, GuardianLink& guardian, const SpawnRequest& request) {
  Ends standard_output = output_pipe();
  Ends standard_error = output_pipe();
  Ends channel = channel_pair();
  guardian.spawn(number, request,
                 {.standard_output = standard_output.workers.get(),
                  .standard_error = standard_error.workers.get(),
                  .channel = channel.workers.get()});

  read_output(number, standard_output, standard_error);
  WorkerProcess& process = waiting(number).process;
  process.channel = std::make_shared<WorkerChannel>(
      io_, channel.ours.release(),
      [this, number](const channel::FromWorker& message) {
        const auto* hello = std::get_if<channel::Hello>(&message);
        if (hello == nullptr || channel::is_compatible(*hello)) return agent_.on_message(number, message);
        agent_.on_message(number, channel::WorkerError{.message = channel::version_mismatch(*hello), .fatal = false});
      },
      [this, number](const std::string& why) {
        agent_.on_message(number, channel::WorkerError{.message = "worker channel closed: " + why, .fatal = false});
      });
  process.channel->start();
}

void StandbyProcesses::read_output(int number, Ends& standard_output, Ends& standard_error) {
  WorkerProcess& process = waiting_[number].process;
  process.number = number;
  process.pipes[static_cast<std::size_t>(Stream::kStdout)] =
      std::make_unique<stream_descriptor>(io_, standard_output.ours.release());
  process.pipes[static_cast<std::size_t>(Stream::kStderr)] =
      std::make_unique<stream_descriptor>(io_, standard_error.ours.release());
  listen(number, Stream::kStdout);
  listen(number, Stream::kStderr);
}

void StandbyProcesses::start_spare(int number, GuardianLink& guardian, const SpawnRequest& request) {
  Ends standard_output = output_pipe();
  Ends standard_error = output_pipe();
  const auto control = std::make_shared<SpareControl>(
      io_, [this, number](const spares::Message& message) { on_spare_message(number, message); });
  guardian.spawn(number, request,
                 {.standard_output = standard_output.workers.get(),
                  .standard_error = standard_error.workers.get(),
                  .channel = control->spares_end()});
  read_output(number, standard_output, standard_error);
  waiting(number).control = control;
  control->begin();
}

void StandbyProcesses::on_spare_message(int number, const spares::Message& message) {
  if (const auto found = pending_starts_.find(number); found != pending_starts_.end()) {
    found->second.acknowledged = true;
    found->second.ack_timer.cancel();
    if (std::holds_alternative<spares::Runs>(message)) {
      found->second.control->close();
      if (number == scanner_) publish_scan();
    }
  }
  if (std::holds_alternative<spares::ScriptReceived>(message)) return;
  if (const auto* runs = std::get_if<spares::Runs>(&message)) {
    if (!runs->cold_start_reason.empty()) agent_.on_cold_start(number, runs->cold_start_reason);
  } else if (!has(number)) {
    return;
  } else if (const auto* unfit = std::get_if<spares::Unfit>(&message)) {
    waiting(number).reported = unfit->why;
    waiting(number).unfit = true;
  } else {
    waiting(number).loaded = std::get<spares::Loaded>(message);
    agent_.on_message(number, channel::StandbyReady{});
  }
}

// Creates the file in memory for the results of a check. Returns an empty Descriptor if the system has no memory or descriptors
// left. Each spare then checks the files itself.
Descriptor StandbyProcesses::make_scan_result() {
  try {
    return memfd_of("");
  } catch (const std::system_error&) {
    return Descriptor();
  }
}

void StandbyProcesses::publish_scan() {
  for (const auto& [number, handed] : pending_starts_) handed.control->announce_scan();
  scan_result_ = Descriptor();
}

bool StandbyProcesses::scan_is_running() const {
  const auto found = pending_starts_.find(scanner_);
  return found != pending_starts_.end() && found->second.control->is_open();
}

// guardian.activate() is called first: if the guardian kills the processes of the round after that, it must also kill this
// process.
pid_t StandbyProcesses::hand_over(int number, GuardianLink& guardian, const SpawnRequest& request,
                                  const SpawnDescriptors& descriptors) {
  if (!has(number)) return 0;
  const auto control = waiting(number).control;
  guardian.activate(number, request.environment);
  const auto role = scan_is_running() ? SpareControl::ScanRole::kWaitsForScan : SpareControl::ScanRole::kScans;
  if (role == SpareControl::ScanRole::kScans) scan_result_ = make_scan_result();
  if (waiting(number).process.pid <= 0 || !control->hand_over(request, descriptors, role, scan_result_.get())) {
    guardian.signal(number, SIGKILL);
    waiting_.erase(number);
    return 0;
  }
  pending_starts_.erase(number);  // removes an earlier spare with this number, which ended before it reported Runs
  pending_starts_.try_emplace(number, std::exchange(waiting(number).control, nullptr), io_);
  if (role == SpareControl::ScanRole::kScans) scanner_ = scan_result_.get() < 0 ? -1 : number;
  await_ack(number);
  return take(number).pid;
}

void StandbyProcesses::await_ack(int number) {
  pending_starts_.at(number).ack_timer.async_wait([this, number](const boost::system::error_code& error) {
    const auto found = error ? pending_starts_.end() : pending_starts_.find(number);
    if (found == pending_starts_.end()) return;
    found->second.control->drain();  // reads a message that arrived while the agent itself was suspended
    if (found->second.acknowledged) return;
    found->second.control->close();
    pending_starts_.erase(found);
    agent_.on_unresponsive(number);
  });
}

StandbyProcesses::Waiting& StandbyProcesses::waiting(int number) {
  const auto found = waiting_.find(number);
  check(found != waiting_.end(), "unknown number of a standby process");
  return found->second;
}

WorkerChannel* StandbyProcesses::channel(int number) const {
  const auto found = waiting_.find(number);
  return found == waiting_.end() ? nullptr : found->second.process.channel.get();
}

void StandbyProcesses::listen(int number, Stream stream) {
  const auto& pipe = waiting(number).process.pipes[static_cast<std::size_t>(stream)];
  pipe->async_wait(stream_descriptor::wait_read, [this, number, stream](const boost::system::error_code& error) {
    if (!error && has(number) && read(number, stream)) listen(number, stream);
  });
}

// Reads one chunk of output. Returns false at the end of the stream.
bool StandbyProcesses::read(int number, Stream stream) {
  auto& pipe = waiting(number).process.pipes[static_cast<std::size_t>(stream)];
  if (!pipe) return false;
  std::array<char, 4096> chunk;
  const ssize_t n = ::read(pipe->native_handle(), chunk.data(), chunk.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (n <= 0) {
    pipe.reset();
    return false;
  }
  keep(number, stream, {chunk.data(), static_cast<std::size_t>(n)});
  return true;
}

// Opens the log file for each write, because standbys print little and an open file per standby would waste descriptors. Write
// errors are ignored. The last line of a failed standby's output is not lost, since the event about its end contains it too.
void StandbyProcesses::keep(int number, Stream stream, std::string_view text) {
  if (!log_root_.empty()) {
    files_.add([folder = standby_folder(log_root_, number - first_), stream, copy = std::string(text)] {
      if (make_folder(folder) != 0) return;
      const Descriptor file(open_log(folder / log_name(stream)));
      if (file.get() >= 0) write_all(file.get(), copy);
    });
  }
  if (stream != Stream::kStderr) return;
  LastLines& tail = waiting(number).tail;
  for (std::size_t end; (end = text.find('\n')) != std::string_view::npos; text.remove_prefix(end + 1)) {
    tail.add(text.substr(0, end));
  }
  tail.add_part(text);
}

StandbyProcesses::MessageResult StandbyProcesses::on_message(int number, const channel::FromWorker& message) {
  return std::visit(
      Overloaded{[](const channel::StandbyReady&) { return MessageResult::kBecameReady; },
                 [&](const channel::WorkerError& error) {
                   waiting(number).reported = error.message;
                   return error.fatal ? MessageResult::kNothingNew : MessageResult::kUnresponsive;
                 },
                 IgnoredAs<MessageResult, channel::Hello, channel::PhaseChange, channel::Progress, channel::EvalResult,
                           channel::Pace, channel::CheckpointPublished, channel::SignalReceived, channel::StopReady,
                           channel::SavesOnStop, channel::Regroupable, channel::RegroupReady, channel::GroupFormed,
                           channel::Position, channel::StoreRequest>{}},
      message);
}

WorkerProcess StandbyProcesses::take(int number) {
  WorkerProcess process = std::move(waiting(number).process);
  waiting_.erase(number);
  for (const auto& pipe : process.pipes) {
    if (pipe) pipe->cancel();  // cancelled, since its handler would not find this standby any more
  }
  return process;
}

StandbyProcesses::ExitInfo StandbyProcesses::forget(int number) {
  Waiting& ended = waiting(number);
  if (ended.process.channel) ended.process.channel->drain();
  if (ended.control) ended.control->drain();
  for (int most = 16; most > 0 && read(number, Stream::kStderr); --most) {
  }
  std::string why = ended.reported;
  const bool unfit = ended.unfit;
  if (const auto lines = ended.tail.lines(); why.empty() && !lines.empty()) why = lines.back();
  waiting_.erase(number);
  return {why, unfit};
}

void StandbyProcesses::close() {
  waiting_.clear();
  for (const auto& [number, handed] : pending_starts_) handed.control->close();
  pending_starts_.clear();
}

void StandbyProcesses::dismiss(GuardianLink& guardian) {
  for (const auto& [number, standby] : waiting_) guardian.signal(number, SIGKILL);
  waiting_.clear();
}

}  // namespace ddprun
