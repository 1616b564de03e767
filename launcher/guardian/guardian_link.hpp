// The agent's connection to the guardian (the process that is the parent of all workers). It starts the guardian, sends it
// requests to start, signal and sweep workers, and passes its notices to the agent. AgentShell owns an object of this class;
// agent_socket.hpp is the guardian's end. When the connection closes, the guardian kills every worker and exits.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/system/descriptor.hpp"
#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/guardian/spawn.hpp"

namespace ddprun {

// The guardian's process after the fork. The fork happens before an io_context exists, while this process has one thread and
// few descriptors open.
struct GuardianProcess {
  pid_t pid = -1;
  int socket = -1;
  std::set<pid_t> older_children;  // children that this process had before the fork, which must not be killed
};

// Makes this process a subreaper and forks the guardian. Throws InternalError. The guardian first calls `forget`, which erases
// secrets from its copy of this process's memory. Otherwise the secrets would stay in memory until the job ends.
GuardianProcess start_guardian(int lock_fd, const std::filesystem::path& report, const std::function<void()>& forget = {});

class GuardianLink {
 public:
  struct Agent {
    virtual void on_notice(const guardian::Notice& notice) = 0;
    virtual void on_guardian_death() = 0;  // called at most once, after all notices

   protected:
    ~Agent() = default;
  };

  GuardianLink(boost::asio::io_context& io, GuardianProcess process, Agent& agent);
  ~GuardianLink();  // waits until the guardian and all its descendants have exited
  GuardianLink(const GuardianLink&) = delete;
  GuardianLink& operator=(const GuardianLink&) = delete;

  // Requests the start of a worker. The caller still owns the descriptors. Throws std::system_error.
  void spawn(int worker, const SpawnRequest& request, const SpawnDescriptors& descriptors);
  // Turns a spare interpreter into a worker of the new round. The guardian reads RANK and MASTER_PORT from `environment`. The
  // spare keeps its number.
  void activate(int spare, const std::vector<std::string>& environment);
  // kStops means that the signal stops the worker. The worker then counts as running until the processes that it leaves behind
  // have exited. If the signal is 0, no signal is sent.
  enum class Purpose { kAny, kStops };
  void signal(int worker, int signal, Purpose purpose = Purpose::kAny);
  // Reports to the guardian which process has sent a message on this worker's channel.
  void note_channel_pid(int worker, pid_t pid);
  void sweep(const guardian::SweepState::Order& order);
  // Orders the guardian to start the store of this round's scripts on these listening sockets. The caller still owns its
  // descriptors and must close them.
  void serve_store(const std::vector<Descriptor>& listeners, bool only_this_machine);
  // Ends the store. Without this call the store runs until the guardian exits. A sweep does not end it, since workers of other
  // nodes may still need it. Returns false if the guardian has not confirmed the end within one second, so the store may still
  // listen. The call may be repeated.
  bool end_store();
  // Sends the current text of the report to the guardian. If this process is killed before it has written the text, the
  // guardian writes it.
  void keep_report(std::string_view text);
  // Returns true if the guardian has no child process and no start is pending, so a sweep is not needed.
  bool no_children_left() const { return no_children_left_ && unanswered_spawns_ == 0; }
  // Ends the guardian and all its descendants. The guardian then does not complete the report. No other function may be called
  // afterwards.
  void shut_down_cleanly();
  // Sets the time at which the guardian kills all workers, even if this agent is stopped or cut off. nullopt removes the
  // deadline. `since_boot` is a time on CLOCK_BOOTTIME.
  void set_deadline(std::optional<std::chrono::nanoseconds> since_boot);
  // Sets the message that the guardian sends after this agent has died and all its workers have ended. The guardian does not
  // send it after shut_down_cleanly().
  void set_death_notice(const guardian::DeathNotice& notice);
  // Call this if a descendant of the guardian cannot be killed. The destructor then does not wait, and the guardian keeps
  // running until this descendant ends.
  void abandon() { abandoned_ = true; }

 private:
  void send(const guardian::Request& request, std::span<const int> fds = {}, std::string_view text = {});
  void wait();
  void receive();

  boost::asio::posix::stream_descriptor socket_;
  GuardianProcess process_;
  Agent& agent_;
  bool abandoned_ = false;
  int unanswered_spawns_ = 0;
  bool no_children_left_ = false;  // value in the guardian's newest notice
};

}  // namespace ddprun
