// The processes of waiting standby workers, and of a script's spare interpreters: their channels, what they print, and handing
// over one that becomes a rank's worker. launcher/agent/agent_shell.cpp owns one, starts and takes standbys as AgentState says
// (which keeps the books in standbys.hpp), and reports their ends. The numbers are the guardian's, above those of the ranks.
// One thread.
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

// The agent's ends of a process that was started as a worker.
struct WorkerProcess {
  std::array<std::unique_ptr<boost::asio::posix::stream_descriptor>, 2> pipes;  // by Stream; null after its end
  std::shared_ptr<WorkerChannel> channel;
  pid_t pid = 0;       // 0: not started yet
  bool asked = false;  // the guardian was asked for it, and its end is not known; its pid may not be known either
  int number = 0;      // by which the guardian knows it
};

class StandbyProcesses {
 public:
  // Gets a process's messages, also after it has become a worker.
  using OnMessage = std::function<void(int number, const channel::FromWorker&)>;

  // `log_root` is the run directory's logs/; numbers begin with `first`.
  // A spare interpreter was handed a script and starts it in a fresh one, for that reason.
  using OnPlain = std::function<void(int number, const std::string& why)>;
  // A spare interpreter was handed a script, and does not say that it has heard: it is stopped, say. It still has the script.
  using OnDeaf = std::function<void(int number)>;
  static constexpr std::chrono::seconds kHearsWithin{5};

  StandbyProcesses(boost::asio::io_context& io, FileQueue& files, std::filesystem::path log_root, int first,
                   OnMessage on_message, OnPlain on_plain, OnDeaf on_deaf)
      : io_(io),
        files_(files),
        log_root_(std::move(log_root)),
        first_(first),
        on_message_(std::move(on_message)),
        on_plain_(std::move(on_plain)),
        on_deaf_(std::move(on_deaf)) {}

  // Throws InternalError or std::system_error. Nothing is written to the logs before it prints something.
  void start(int number, GuardianLink& guardian, const SpawnRequest& request);
  // A spare interpreter: `request` is how it waits. It says StandbyReady as a standby does.
  void start_spare(int number, GuardianLink& guardian, const SpawnRequest& request);
  // The spare becomes a worker, by the request and descriptors of a fresh one; its number stays. Returns its process, or 0 when
  // it is gone. Throws std::system_error.
  pid_t hand_over(int number, GuardianLink& guardian, const SpawnRequest& request, const SpawnDescriptors& descriptors);
  bool has(int number) const { return waiting_.contains(number); }
  WorkerChannel* channel(int number) const;
  pid_t pid(int number) { return waiting(number).process.pid; }
  void started(int number, pid_t pid) { waiting(number).process.pid = pid; }
  // What it says, which is kept where it may be why it ends. kIsDeaf: its channel broke, and it would never hear of its rank.
  enum class Heard { kNothingNew, kIsReady, kIsDeaf };
  Heard heard(int number, const channel::FromWorker& message);
  // It is the caller's from here on; nothing waits on its pipes.
  WorkerProcess take(int number);
  // Of one that is ready.
  StandbyWaits waits(int number, std::int64_t time_ns) {
    const Waiting& ready = waiting(number);
    return {ready.process.pid, time_ns, ready.loaded.seconds, ready.loaded.memory_bytes};
  }
  // The standby has ended. `why`: the reason that it reported, else its last line of output. `for_good`: another one would do
  // no better.
  struct Went {
    std::string why;
    bool for_good = false;
  };
  Went forget(int number);
  // Sends SIGKILL to all; what is reported about them later is ignored.
  void dismiss(GuardianLink& guardian);
  void close();

 private:
  struct Waiting {
    WorkerProcess process;
    std::shared_ptr<SpareControl> control;  // of a spare
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

  // A spare that has not said yet how it runs.
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
  int looks_ = -1;    // of those in handed_, the one that looks at the files for all that were handed over since
  Descriptor board_;  // theirs
};

}  // namespace ddprun
