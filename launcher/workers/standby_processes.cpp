// Implementation of standby_processes.hpp.
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
        if (hello == nullptr || channel::speaks_our_version(*hello)) return on_message_(number, message);
        on_message_(number, channel::WorkerError{.message = channel::other_version_of(*hello), .fatal = false});
      },
      [this, number](const std::string& why) {
        on_message_(number, channel::WorkerError{.message = "worker channel closed: " + why, .fatal = false});
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
  const auto control = std::make_shared<SpareControl>(io_, [this, number](const spares::Word& word) { hear(number, word); });
  guardian.spawn(number, request,
                 {.standard_output = standard_output.workers.get(),
                  .standard_error = standard_error.workers.get(),
                  .channel = control->spares_end()});
  read_output(number, standard_output, standard_error);
  waiting(number).control = control;
  control->begin();
}

void StandbyProcesses::hear(int number, const spares::Word& word) {
  if (const auto found = handed_.find(number); found != handed_.end()) {
    found->second.heard = true;
    found->second.patience.cancel();
    if (std::holds_alternative<spares::Runs>(word)) {
      found->second.control->close();
      if (number == looks_) say_seen();
    }
  }
  if (std::holds_alternative<spares::HasHeard>(word)) return;
  if (const auto* runs = std::get_if<spares::Runs>(&word)) {
    if (!runs->plainly_for.empty()) on_plain_(number, runs->plainly_for);
  } else if (!has(number)) {
    return;
  } else if (const auto* unfit = std::get_if<spares::Unfit>(&word)) {
    waiting(number).reported = unfit->why;
    waiting(number).unfit = true;
  } else {
    waiting(number).loaded = std::get<spares::HasLoaded>(word);
    on_message_(number, channel::StandbyReady{});
  }
}

// Returns no descriptor if the system has no memory or descriptors left. Each spare then checks the files itself.
Descriptor StandbyProcesses::make_board() {
  try {
    return Descriptor(memfd_of(""));
  } catch (const std::system_error&) {
    return Descriptor();
  }
}

void StandbyProcesses::say_seen() {
  for (const auto& [number, handed] : handed_) handed.control->tell_seen();
  board_ = Descriptor();
}

bool StandbyProcesses::somebody_looks() const {
  const auto found = handed_.find(looks_);
  return found != handed_.end() && found->second.control->is_open();
}

// guardian.employ() comes first: a sweep of the round's processes that follows must include this process.
pid_t StandbyProcesses::hand_over(int number, GuardianLink& guardian, const SpawnRequest& request,
                                  const SpawnDescriptors& descriptors) {
  if (!has(number)) return 0;
  const auto control = waiting(number).control;
  guardian.employ(number, request.environment);
  const auto look = somebody_looks() ? SpareControl::Look::kWaits : SpareControl::Look::kForAll;
  if (look == SpareControl::Look::kForAll) board_ = make_board();
  if (waiting(number).process.pid <= 0 || !control->hand_over(request, descriptors, look, board_.get())) {
    guardian.signal(number, SIGKILL);
    waiting_.erase(number);
    return 0;
  }
  handed_.erase(number);  // removes an earlier spare of that number, which ended before it reported how it runs
  handed_.try_emplace(number, std::exchange(waiting(number).control, nullptr), io_);
  if (look == SpareControl::Look::kForAll) looks_ = board_.get() < 0 ? -1 : number;
  await_hearing(number);
  return take(number).pid;
}

void StandbyProcesses::await_hearing(int number) {
  handed_.at(number).patience.async_wait([this, number](const boost::system::error_code& error) {
    const auto found = error ? handed_.end() : handed_.find(number);
    if (found == handed_.end()) return;
    found->second.control->drain();  // reads a report that arrived while this process itself was stopped
    if (found->second.heard) return;
    found->second.control->close();
    handed_.erase(found);
    on_deaf_(number);
  });
}

StandbyProcesses::Waiting& StandbyProcesses::waiting(int number) {
  const auto found = waiting_.find(number);
  check(found != waiting_.end(), "no standby goes by that number");
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

// Reads one chunk. Returns false at the end of the stream.
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

// Standbys print little, so no file is kept open for them. A failed write is not reported: if a standby fails, the last line of
// its output is shown when it ends.
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

StandbyProcesses::Heard StandbyProcesses::heard(int number, const channel::FromWorker& message) {
  return std::visit(Overloaded{[](const channel::StandbyReady&) { return Heard::kIsReady; },
                               [&](const channel::WorkerError& error) {
                                 waiting(number).reported = error.message;
                                 return error.fatal ? Heard::kNothingNew : Heard::kIsDeaf;
                               },
                               IgnoredAs<Heard, channel::Hello, channel::PhaseChange, channel::Progress, channel::EvalResult,
                                         channel::Pace, channel::CheckpointPublished, channel::SignalReceived,
                                         channel::StopReady, channel::SavesOnStop, channel::Regroupable, channel::RegroupReady,
                                         channel::GroupFormed, channel::Position, channel::StoreRequest>{}},
                    message);
}

WorkerProcess StandbyProcesses::take(int number) {
  WorkerProcess process = std::move(waiting(number).process);
  waiting_.erase(number);
  for (const auto& pipe : process.pipes) {
    if (pipe) pipe->cancel();  // a read that waits here ends with an error, or finds no standby of that number
  }
  return process;
}

StandbyProcesses::Went StandbyProcesses::forget(int number) {
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
  for (const auto& [number, handed] : handed_) handed.control->close();
  handed_.clear();
}

void StandbyProcesses::dismiss(GuardianLink& guardian) {
  for (const auto& [number, standby] : waiting_) guardian.signal(number, SIGKILL);
  waiting_.clear();
}

}  // namespace ddprun
