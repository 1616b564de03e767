// libddprun_channel: the worker's end of the worker channel, for programs that are not ddptrain. It implements ddprun_worker.h,
// and sends the same messages as the Python package (python/ddprun/_worker_channel.py).
//
// The agent can send a message, such as a stop request, at any time, even while the program waits in a collective. A separate
// thread therefore reads the channel. The program's threads write to it directly. If the agent does not read, a write waits at
// most 10 s, and then the channel is closed. A progress message does not wait: it is dropped, since the next progress message
// has newer values.
//
// After a stop request all ranks must save at the same step. Each rank counts its calls to should_stop(). A rank answers the
// request with the number of its next call, and waits in that call. The agents choose the largest of these numbers. Example:
// rank 0 has made 6 calls and answers 7, rank 1 has made 7 calls and answers 8. Call 7 then returns false on rank 0, and call 8
// returns true on both ranks.
#include "ddprun_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "common/channel/codec.hpp"
#include "common/channel/message.hpp"
#include "common/channel/named_metrics.hpp"
#include "common/channel/step_times.hpp"

namespace {

using namespace ddprun;  // NOLINT: this file is the library
using std::chrono::steady_clock;

static_assert(DDPRUN_CHANNEL_MAJOR == channel::kProtocolMajor && DDPRUN_CHANNEL_MINOR == channel::kProtocolMinor);
static_assert(DDPRUN_DONE == static_cast<int>(channel::Phase::kDone));
static_assert(DDPRUN_CHECKPOINT == static_cast<int>(channel::ErrorKind::kCheckpoint));

constexpr std::chrono::milliseconds kProgressEvery{200};  // minimum time between progress messages
constexpr int kWriteTimeoutMs = 10'000;                   // maximum wait in milliseconds if the agent does not read

std::int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int number_in_environment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

// Returns the descriptor of the worker channel that the agent passed to this process. Removes the channel's environment
// variables, so that child processes do not use the channel.
std::optional<int> descriptor_of_the_channel() {
  const char* const variable = std::getenv("DDPRUN_CHANNEL");
  const std::string where = variable == nullptr ? "" : variable;
  const char* const identity = std::getenv("DDPRUN_CHANNEL_INODE");
  const std::string inode = identity == nullptr ? "" : identity;
  ::unsetenv("DDPRUN_CHANNEL");
  ::unsetenv("DDPRUN_CHANNEL_INODE");
  constexpr std::string_view kMark = "fd:";
  int fd = -1;
  if (!where.starts_with(kMark)) return std::nullopt;
  const auto [end, error] = std::from_chars(where.data() + kMark.size(), where.data() + where.size(), fd);
  if (error != std::errc() || end != where.data() + where.size()) return std::nullopt;
  int family = 0, type = 0;
  socklen_t size = sizeof family;
  // A wrapper such as sudo closes inherited descriptors. Another file may then have the descriptor's number, so the inode is
  // compared.
  struct stat info {};
  if (!inode.empty() && (::fstat(fd, &info) != 0 || std::to_string(info.st_ino) != inode)) return std::nullopt;
  if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0 || family != AF_UNIX) return std::nullopt;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return std::nullopt;
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return fd;
}

}  // namespace

// `state_` protects the members. `writing_` ensures that frames of two threads are not mixed. A thread that has locked `state_`
// may lock `writing_`, but not the other way round, which could cause a deadlock.
struct ddprun_worker {
 public:
  ddprun_worker(int fd, std::string program) : fd_(fd), rank_(number_in_environment("RANK")) {
    channel::Hello hello;
    hello.version = std::move(program);
    hello.pid = ::getpid();
    send_message(hello);
    // The reader thread blocks all signals, so that the kernel delivers them to the program's own threads.
    sigset_t all, before;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    reader_ = std::thread([this] { listen(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  ~ddprun_worker() {
    {
      const std::lock_guard lock(state_);
      if (unsent_) send_progress();
    }
    ::shutdown(fd_, SHUT_RDWR);
    reader_.join();
    ::close(fd_);
  }

  ddprun_worker(const ddprun_worker&) = delete;
  ddprun_worker& operator=(const ddprun_worker&) = delete;

  bool in_its_process() const { return ::getpid() == pid_; }

  void enter(channel::Phase phase, std::int64_t step, std::int64_t epoch) {
    const std::lock_guard lock(state_);
    change_phase(phase, step, epoch);
  }

  void figure(std::string name, double value) {
    const std::lock_guard lock(state_);
    if (rank_ == 0) metrics_.set(std::move(name), value);
  }

  void progress(const channel::Progress& now) {
    const std::lock_guard lock(state_);
    const bool first = !progress_.has_value();
    change_phase(channel::Phase::kRunning, std::max<std::int64_t>(0, now.step - 1), now.epoch);
    progress_ = now;
    unsent_ = true;
    const auto time = steady_clock::now();
    const bool ends = now.steps_total > 0 && now.step == now.steps_total;
    if (first || ends || time - sent_at_ >= kProgressEvery) {
      sent_at_ = time;
      send_progress();
    }
  }

  void step_time(const channel::StepTime& one) {
    const std::lock_guard lock(state_);
    if (const auto pace = step_times_.add(one, steady_clock::now())) send_message(*pace, Urgency::kMayBeDropped);
  }

  void saved(const channel::CheckpointPublished& checkpoint) {
    const std::lock_guard lock(state_);
    if (!phase_) change_phase(channel::Phase::kRunning, checkpoint.step, 0);
    send_message(checkpoint);
  }

  void error(channel::ErrorKind kind, std::string message) {
    const std::lock_guard lock(state_);
    channel::WorkerError report;
    report.kind = kind;
    report.message = std::move(message);
    report.step = progress_ ? progress_->step : -1;
    report.time_ns = now_ns();
    send_message(report);
  }

  bool should_stop() {
    std::unique_lock lock(state_);
    if (stop_checks_++ == 0) {
      if (!phase_) change_phase(channel::Phase::kRunning, progress_ ? progress_->step : 0, 0);
      send_message(channel::SavesOnStop{});
    }
    changed_.wait(lock, [&] { return !stopping_ || stop_at_ || stop_now_ || closed_; });
    if (!stopping_ || !stop_at_ || stop_checks_ < *stop_at_) return false;
    change_phase(channel::Phase::kSaving, progress_ ? progress_->step : 0, progress_ ? progress_->epoch : 0);
    return true;
  }

 private:
  void change_phase(channel::Phase phase, std::int64_t step, std::int64_t epoch) {
    if (phase_ == phase) return;
    phase_ = phase;
    send_message(channel::PhaseChange{.phase = phase, .step = step, .epoch = epoch});
  }

  void send_progress() {
    channel::Progress message = *progress_;
    metrics_.add_to(message);
    // If the message was not sent, the metrics stay here for the next message.
    if (!send_message(message, Urgency::kMayBeDropped)) return;
    metrics_.clear();
    unsent_ = false;
  }

  enum class Urgency { kIsSent, kMayBeDropped };

  // Sends one message. Returns false if it was not sent. If the agent does not read its socket, this call waits at most 10 s,
  // and later calls send nothing.
  bool send_message(const channel::FromWorker& message, Urgency urgency = Urgency::kIsSent) {
    const std::string frame = channel::encode(message);
    const std::lock_guard lock(writing_);
    std::size_t sent = 0;
    while (!unresponsive_ && sent < frame.size()) {
      const ssize_t count = ::send(fd_, frame.data() + sent, frame.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count >= 0) {
        sent += static_cast<std::size_t>(count);
      } else if (errno == EAGAIN) {
        if (urgency == Urgency::kMayBeDropped && sent == 0) return false;
        pollfd writable{fd_, POLLOUT, 0};
        if (::poll(&writable, 1, kWriteTimeoutMs) == 0) unresponsive_ = true;
      } else if (errno != EINTR) {
        unresponsive_ = true;
      }
    }
    if (unresponsive_) ::shutdown(fd_, SHUT_RDWR);  // ends listen(), which wakes should_stop(): no answer will arrive
    return sent == frame.size();
  }

  // ---- the reader thread ----

  void listen() {
    try {
      channel::Decoder decoder;
      std::array<std::byte, 16384> buffer{};
      while (true) {
        const ssize_t count = ::recv(fd_, buffer.data(), buffer.size(), 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) break;
        decoder.feed(std::span(buffer.data(), static_cast<std::size_t>(count)));
        while (const auto message = decoder.next_from_agent()) on_message(*message);
      }
    } catch (const std::exception&) {
      // The received bytes violate the protocol of the channel. From here on the library ignores the channel, and the program
      // continues.
    }
    const std::lock_guard lock(state_);
    closed_ = true;
    changed_.notify_all();
  }

  void on_message(const channel::FromAgent& message) {
    const std::lock_guard lock(state_);
    if (std::holds_alternative<channel::PositionRequest>(message)) {
      send_message(channel::Position{.phase = phase_.value_or(channel::Phase::kRunning),
                                     .step = progress_ ? std::max<std::int64_t>(0, progress_->step) : 0,
                                     .stage = channel::Stage::kSomewhere});
    } else if (const auto* stop = std::get_if<channel::Stop>(&message)) {
      if (stop->mode == channel::Stop::Mode::kSave) {
        // The step in progress counts as started. Other ranks may already wait in this step for this rank, so the job must not
        // stop before the end of the step. The next call to should_stop() waits until the agent has chosen the step (StopAt).
        stopping_ = true;
        send_message(channel::StopReady{.started = stop_checks_ + 1});
      } else {
        stop_now_ = true;
      }
    } else if (const auto* at = std::get_if<channel::StopAt>(&message)) {
      stop_at_ = at->step;
    }
    changed_.notify_all();
  }

  const int fd_;
  const int rank_;
  const pid_t pid_ = ::getpid();
  std::mutex writing_;
  bool unresponsive_ = false;  // if true, nothing more is sent, because the agent has ended or a frame was sent only in part
  std::mutex state_;
  std::condition_variable changed_;
  std::optional<channel::Phase> phase_;
  std::optional<channel::Progress> progress_;  // the newest progress
  channel::NamedMetrics metrics_;              // metrics that have not been sent
  bool unsent_ = false;
  channel::StepTimes step_times_;
  steady_clock::time_point sent_at_;
  std::int64_t stop_checks_ = 0;  // number of calls to should_stop()
  bool stopping_ = false;         // the agent has requested to save and stop, and StopReady was sent
  std::optional<std::int64_t> stop_at_;
  bool stop_now_ = false;
  bool closed_ = false;  // the reader thread has ended
  std::thread reader_;
};

namespace {

// Calls `function` and catches all exceptions, because the caller may be C code. For example, if there is not enough memory for
// a message, the message is dropped.
template <class Function>
int quietly(ddprun_worker* worker, const Function& function) noexcept {
  try {
    if (worker != nullptr && worker->in_its_process()) function();
  } catch (...) {
  }
  return 0;
}

}  // namespace

extern "C" {

ddprun_worker* ddprun_hello(const char* program) {
  try {
    const auto fd = descriptor_of_the_channel();
    return fd ? new ddprun_worker(*fd, program == nullptr ? "" : program) : nullptr;
  } catch (...) {
    return nullptr;
  }
}

int ddprun_enter(ddprun_worker* worker, int phase, int64_t step, int64_t epoch) {
  if (phase < DDPRUN_STARTING || phase > DDPRUN_DONE) return -1;
  return quietly(worker, [&] { worker->enter(static_cast<channel::Phase>(phase), step, epoch); });
}

int ddprun_figure(ddprun_worker* worker, const char* name, double value) {
  if (name == nullptr || *name == '\0') return -1;
  return quietly(worker, [&] { worker->figure(name, value); });
}

int ddprun_progress(ddprun_worker* worker, int64_t step, int64_t steps_total, int64_t epoch, int64_t epochs, int64_t samples) {
  if (step < 0 || steps_total < 0 || epoch < 0 || epochs < 0 || samples < 0) return -1;
  return quietly(worker, [&] {
    worker->progress({.step = step, .steps_total = steps_total, .epoch = epoch, .epochs = epochs, .samples = samples});
  });
}

int ddprun_step_time(ddprun_worker* worker, int64_t step, double own, double waiting, double data) {
  constexpr double kLongest = 1e9;  // this comparison also rejects NaN
  for (const double seconds : {own, waiting, data})
    if (!(seconds >= 0 && seconds <= kLongest)) return -1;
  if (step < 0) return -1;
  const auto us = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e6); };
  return quietly(worker,
                 [&] { worker->step_time({.step = step, .own_us = us(own), .waiting_us = us(waiting), .data_us = us(data)}); });
}

int ddprun_saved(ddprun_worker* worker, const char* path, int64_t step, double seconds, int64_t bytes) {
  if (step < 0 || !(seconds >= 0) || bytes < 0) return -1;
  return quietly(worker, [&] {
    worker->saved({.step = step, .path = path == nullptr ? "" : path, .pause_s = seconds, .save_s = seconds, .bytes = bytes});
  });
}

int ddprun_error(ddprun_worker* worker, int kind, const char* message) {
  if (kind < DDPRUN_EXCEPTION || kind > DDPRUN_CHECKPOINT) return -1;
  return quietly(worker, [&] { worker->error(static_cast<channel::ErrorKind>(kind), message == nullptr ? "" : message); });
}

int ddprun_should_stop(ddprun_worker* worker) {
  bool stop = false;
  quietly(worker, [&] { stop = worker->should_stop(); });
  return stop ? 1 : 0;
}

void ddprun_goodbye(ddprun_worker* worker) {
  quietly(worker, [&] { delete worker; });
}

}  // extern "C"
