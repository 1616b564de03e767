// The processes of waiting standby workers and of a script's spare interpreters: their channels, their output, and the
// hand-over of one that becomes a rank's worker. launcher/agent/agent_shell.cpp owns one. AgentState decides which standbys
// start and take over (with the state in standbys.hpp); this class reports their ends. Process numbers are those of the
// guardian, above the numbers of the ranks. One thread.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/descriptor.hpp"
#include "common/system/file_queue.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/events/stream.hpp"
#include "launcher/guardian/guardian_link.hpp"
#include "launcher/guardian/spawn.hpp"
#include "launcher/output/last_lines.hpp"
#include "launcher/spares/spare_control.hpp"
#include "launcher/workers/worker_channel.hpp"
#include "launcher/workers/worker_pipes.hpp"

namespace ddprun {

// The agent's ends of the descriptors of a process that was started as a worker.
struct WorkerProcess {
  std::array<std::unique_ptr<boost::asio::posix::stream_descriptor>, 2> pipes;  // by Stream; null after its end
  std::shared_ptr<WorkerChannel> channel;
  pid_t pid = 0;       // 0: not started yet
  bool asked = false;  // the guardian was asked to start it, and it may still run, even while pid is 0
  int number = 0;      // the guardian's number for the process
};

class StandbyProcesses {
 public:
  // Receives a process's messages, including those after it has become a worker.
  using OnMessage = std::function<void(int number, const channel::FromWorker&)>;

  // Called if a spare interpreter was sent a script but runs it in a fresh interpreter; `why` is the reason.
  using OnPlain = std::function<void(int number, const std::string& why)>;
  // Called if a spare interpreter was sent a script but does not confirm it within kHearsWithin, for example because it is
  // stopped. It still has the script.
  using OnDeaf = std::function<void(int number)>;
  static constexpr std::chrono::seconds kHearsWithin{5};

  // `log_root` is the run directory's logs/; process numbers begin with `first`.
  StandbyProcesses(boost::asio::io_context& io, FileQueue& files, std::filesystem::path log_root, int first,
                   OnMessage on_message, OnPlain on_plain, OnDeaf on_deaf)
      : io_(io),
        files_(files),
        log_root_(std::move(log_root)),
        first_(first),
        on_message_(std::move(on_message)),
        on_plain_(std::move(on_plain)),
        on_deaf_(std::move(on_deaf)) {}

  // Throws InternalError or std::system_error. A log file is created only when the process prints something.
  void start(int number, GuardianLink& guardian, const SpawnRequest& request);
  // Starts a spare interpreter; `request` is its waiting command. It reports StandbyReady like a standby.
  void start_spare(int number, GuardianLink& guardian, const SpawnRequest& request);
  // Makes the spare a worker with the request and descriptors of a fresh worker; its number stays the same. Returns its pid, or
  // 0 if the process has ended. Throws std::system_error.
  pid_t hand_over(int number, GuardianLink& guardian, const SpawnRequest& request, const SpawnDescriptors& descriptors);
  bool has(int number) const { return waiting_.contains(number); }
  WorkerChannel* channel(int number) const;
  pid_t pid(int number) { return waiting(number).process.pid; }
  void started(int number, pid_t pid) { waiting(number).process.pid = pid; }
  // Handles a message. Its text is stored, since it may be the reason if the process ends. kIsDeaf: the channel is broken, so
  // the process could not receive a rank.
  enum class Heard { kNothingNew, kIsReady, kIsDeaf };
  Heard heard(int number, const channel::FromWorker& message);
  // Moves the process to the caller; no read is pending on its pipes.
  WorkerProcess take(int number);
  // The event for a standby that is ready.
  StandbyWaits waits(int number, std::int64_t time_ns) {
    const Waiting& ready = waiting(number);
    return {ready.process.pid, time_ns, ready.loaded.seconds, ready.loaded.memory_bytes};
  }
  // Call it when the standby has ended. `why`: the reason that it reported, else its last line of output. `for_good`: another
  // one would fail in the same way.
  struct Went {
    std::string why;
    bool for_good = false;
  };
  Went forget(int number);
  // Sends SIGKILL to all. Later reports about them are ignored.
  void dismiss(GuardianLink& guardian);
  void close();

 private:
  struct Waiting {
    WorkerProcess process;
    std::shared_ptr<SpareControl> control;  // set for a spare only
    spares::HasLoaded loaded;
    bool unfit = false;
    LastLines tail;
    std::string reported;
    ~Waiting() {
      if (process.channel) process.channel->close();
      if (control) control->close();
    }
    Waiting() = default;
    Waiting(Waiting&&) = default;
    Waiting& operator=(Waiting&&) = default;
  };

  // A spare that has received a script but has not reported yet how it runs it.
  struct Handed {
    Handed(std::shared_ptr<SpareControl> of_spare, boost::asio::io_context& io)
        : control(std::move(of_spare)), patience(io, kHearsWithin) {}
    std::shared_ptr<SpareControl> control;
    boost::asio::steady_timer patience;
    bool heard = false;
  };

  Waiting& waiting(int number);
  void hear(int number, const spares::Word& word);
  void await_hearing(int number);
  bool somebody_looks() const;
  void say_seen();
  static Descriptor make_board();
  void read_output(int number, Ends& standard_output, Ends& standard_error);
  void listen(int number, Stream stream);
  bool read(int number, Stream stream);
  void keep(int number, Stream stream, std::string_view text);

  boost::asio::io_context& io_;
  FileQueue& files_;
  std::filesystem::path log_root_;
  int first_;
  OnMessage on_message_;
  OnPlain on_plain_;
  OnDeaf on_deaf_;
  std::map<int, Waiting> waiting_;
  std::map<int, Handed> handed_;
  int looks_ = -1;    // number of the spare in handed_ that checks the files for all spares handed over since; -1: none
  Descriptor board_;  // shared memory through which that spare passes its results to the others
};

}  // namespace ddprun
