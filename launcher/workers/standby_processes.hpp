// Owns the processes of waiting standby workers and spare interpreters: their channels, their output, and their change into
// the worker of a rank. launcher/agent/agent_shell.cpp owns one instance. AgentState decides which standbys start and which of
// them get a rank (its state is in standbys.hpp). This class reports events of the standbys to the agent. A process number is
// the guardian's number for a process; the numbers of standbys are above all ranks. The class runs on one thread.
//
// The problem. A new worker needs seconds to load its libraries. A standby has already loaded them, so it can take over a rank
// within a fraction of a second. A standby of ddptrain gets its rank as a message on its worker channel. A spare interpreter
// has no worker channel yet. It gets the request and the descriptors of a new worker on its control socket.
//
// How it goes wrong. The files that a spare has imported may have changed. Checking some 2,000 files in each of several spares
// would take longer than the restart itself. And a spare that is stopped by a signal never answers.
//
// The idea. If several spares start together, the first one checks the files for all of them. It writes its results into a
// shared file in memory. A spare that does not acknowledge its script within kAckTimeout is reported to the agent, which kills
// it. An example with two spares that replace ranks 0 and 1:
//
//     agent -> guardian   activate spares 8 and 9   they now belong to the round, so a sweep kills them too
//     agent -> spare 8    script, kScans            spare 8 acknowledges the script and checks its files
//     agent -> spare 9    script, kWaitsForScan     spare 9 acknowledges the script and waits for the results
//     spare 8 -> agent    Runs                      the check is complete; spare 8 runs the script
//     agent -> spare 9    the results are complete
//     spare 9 -> agent    Runs                      spare 9 runs the script
//
// docs/internals/decisions/launcher/spare-interpreters.md has measurements and the alternatives that we tried.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <filesystem>
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
#include "launcher/workers/spare_control.hpp"
#include "launcher/workers/worker_channel.hpp"
#include "launcher/workers/worker_pipes.hpp"

namespace ddprun {

// What the agent has of a process that was started as a worker or standby: its pipes, its channel and its pid.
struct WorkerProcess {
  // The read ends of the process's stdout and stderr, indexed by Stream; null after end of file.
  std::array<std::unique_ptr<boost::asio::posix::stream_descriptor>, 2> pipes;
  std::shared_ptr<WorkerChannel> channel;
  pid_t pid = 0;               // 0: not started yet
  bool spawn_pending = false;  // the guardian has a request to start the process; it may be running even while pid is 0
  int number = 0;              // the guardian's number for the process
};

class StandbyProcesses {
 public:
  struct Agent {
    // Receives the messages of a standby, including those that it sends after it has become a worker.
    virtual void on_message(int number, const channel::FromWorker& message) = 0;
    // The object calls this when a spare interpreter got a script, but runs it in a fresh interpreter because of `why`.
    virtual void on_cold_start(int number, const std::string& why) = 0;
    // The object calls this when a spare interpreter has not acknowledged its script within kAckTimeout. For example, the
    // spare may be stopped by a signal. The spare might still run the script later, so the agent must kill it.
    virtual void on_unresponsive(int number) = 0;

   protected:
    ~Agent() = default;
  };
  static constexpr std::chrono::seconds kAckTimeout{5};

  // `log_root` is the logs/ folder of the run directory. `first` is the first process number of a standby.
  StandbyProcesses(boost::asio::io_context& io, FileQueue& files, std::filesystem::path log_root, int first, Agent& agent)
      : io_(io), files_(files), log_root_(std::move(log_root)), first_(first), agent_(agent) {}

  // Starts a standby worker. Its log file is created at its first output. Throws InternalError or std::system_error.
  void start(int number, GuardianLink& guardian, const SpawnRequest& request);
  // Starts a spare interpreter. `request` contains the command that the spare runs while it waits. The spare sends the message
  // StandbyReady, as a standby does.
  void start_spare(int number, GuardianLink& guardian, const SpawnRequest& request);
  // Turns a spare interpreter into the worker of a rank. The spare gets the same request and descriptors as a new worker
  // process, but its `number` does not change. Returns the pid of the spare, or 0 if the spare has ended. Throws
  // std::system_error.
  pid_t hand_over(int number, GuardianLink& guardian, const SpawnRequest& request, const SpawnDescriptors& descriptors);
  bool has(int number) const { return waiting_.contains(number); }
  WorkerChannel* channel(int number) const;
  pid_t pid(int number) { return waiting(number).process.pid; }
  void started(int number, pid_t pid) { waiting(number).process.pid = pid; }
  // Processes a message of a standby. Stores an error text, because it may be the reason why the standby ends later.
  // kUnresponsive means that the channel is broken, so the standby cannot receive a rank.
  enum class MessageResult { kNothingNew, kBecameReady, kUnresponsive };
  MessageResult on_message(int number, const channel::FromWorker& message);
  // Transfers the process to the caller. Afterwards no read is pending on its pipes.
  WorkerProcess take(int number);
  // Returns the event for a standby that has become ready.
  StandbyWaits ready_event(int number, std::int64_t time_ns) {
    const Waiting& ready = waiting(number);
    return {ready.process.pid, time_ns, ready.loaded.seconds, ready.loaded.memory_bytes};
  }
  // The end of a standby. `why` is the reason that the standby reported, otherwise its last line on stderr. `permanent` is true
  // if another standby would fail in the same way.
  struct ExitInfo {
    std::string why;
    bool permanent = false;
  };
  // Removes the standby. Call this when the standby has ended.
  ExitInfo forget(int number);
  // Kills all standbys with SIGKILL and removes them, so that later messages about them are ignored.
  void dismiss(GuardianLink& guardian);
  void close();

 private:
  struct Waiting {
    WorkerProcess process;
    std::shared_ptr<SpareControl> control;  // null for a standby worker
    spares::Loaded loaded;
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

  // A spare that has received a script but has not reported yet how it runs the script.
  struct PendingStart {
    PendingStart(std::shared_ptr<SpareControl> spare_control, boost::asio::io_context& io)
        : control(std::move(spare_control)), ack_timer(io, kAckTimeout) {}
    std::shared_ptr<SpareControl> control;
    boost::asio::steady_timer ack_timer;
    bool acknowledged = false;
  };

  Waiting& waiting(int number);
  void on_spare_message(int number, const spares::Message& message);
  void await_ack(int number);
  bool scan_is_running() const;
  void publish_scan();
  static Descriptor make_scan_result();
  void read_output(int number, Ends& standard_output, Ends& standard_error);
  void listen(int number, Stream stream);
  bool read(int number, Stream stream);
  void keep(int number, Stream stream, std::string_view text);

  boost::asio::io_context& io_;
  FileQueue& files_;
  std::filesystem::path log_root_;
  int first_;
  Agent& agent_;
  std::map<int, Waiting> waiting_;
  std::map<int, PendingStart> pending_starts_;
  int scanner_ = -1;        // process number of the spare that checks the files for all spares in pending_starts_; -1: none
  Descriptor scan_result_;  // file in memory with the scanner's results, for the other spares
};

}  // namespace ddprun
