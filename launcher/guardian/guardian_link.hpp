// The agent's connection to the guardian. It starts the guardian, sends it requests to start, signal and sweep workers, and
// passes its notices on. AgentShell owns one; agent_socket.hpp is the other end. When the connection is closed, the guardian
// ends every worker and itself.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "launcher/guardian/guardian_protocol.hpp"
#include "launcher/guardian/spawn.hpp"

namespace ddprun {

// The forked guardian, before an io_context exists. It is forked first, while this process has one thread and few descriptors.
struct GuardianProcess {
  pid_t pid = -1;
  int socket = -1;
  std::set<pid_t> older_children;  // children of this process that it must not kill
};

// Makes this process a subreaper and forks the guardian. Throws InternalError. The guardian calls `forget` first, since it has
// a copy of this process's memory and lives as long as the job.
GuardianProcess start_guardian(int lock_fd, const std::filesystem::path& report, const std::function<void()>& forget = {});

class GuardianLink {
 public:
  using OnNotice = std::function<void(const guardian::Notice&)>;
  using OnDeath = std::function<void()>;  // called once at most; no notice follows

  GuardianLink(boost::asio::io_context& io, GuardianProcess process, OnNotice on_notice, OnDeath on_death);
  ~GuardianLink();  // waits until the guardian and all its descendants have ended
  GuardianLink(const GuardianLink&) = delete;
  GuardianLink& operator=(const GuardianLink&) = delete;

  // Throws std::system_error. The caller keeps the descriptors.
  void spawn(int worker, const SpawnRequest& request, const SpawnDescriptors& descriptors);
  // A spare becomes a worker of the new round, with this environment. It keeps its number.
  void employ(int spare, const std::vector<std::string>& environment);
  // kStops: the worker is being stopped. Signal 0 sends no signal.
  enum class Purpose { kAny, kStops };
  void signal(int worker, int signal, Purpose purpose = Purpose::kAny);
  // This process has spoken on the worker's channel.
  void note_speaker(int worker, pid_t pid);
  void sweep(const guardian::SweepState::Order& order);
  // The guardian serves the store of this round's scripts at these sockets, which already listen. The caller keeps its
  // descriptors and closes them.
  void serve_store(const std::vector<int>& listeners, bool only_this_machine);
  // A sweep does not end the store, since workers of other nodes may still need it. It ends by this call, or with the guardian.
  // False if the guardian has not confirmed the end within a second: the store may still listen then. May be called again.
  bool end_store();
  // Sends the current text of the report. The guardian writes it if this process is killed before it could.
  void keep_report(std::string_view text);
  // True if the guardian has no child and is starting none, so there is nothing to sweep.
  bool nothing_is_left() const { return nothing_is_left_ && unanswered_spawns_ == 0; }
  // Ends the guardian and all its descendants. Call nothing else afterwards. The report is complete, so the guardian does not
  // complete it.
  void say_farewell();
  // The guardian kills all workers at this time, even if this agent is stopped or cut off. nullopt: no deadline.
  void set_deadline(std::optional<std::chrono::nanoseconds> since_boot);
  // The guardian sends this message when this agent has died and all its workers have ended, but not after say_farewell().
  void entrust(const guardian::LastWord& word);
  // A descendant of the guardian cannot be killed, so the destructor does not wait. The guardian stays until that process ends.
  void abandon() { abandoned_ = true; }

 private:
  void send(const guardian::Request& request, const int* fds, int fd_count, std::string_view text = {});
  void wait();
  void receive();

  boost::asio::posix::stream_descriptor socket_;
  GuardianProcess process_;
  OnNotice on_notice_;
  OnDeath on_death_;
  bool abandoned_ = false;
  int unanswered_spawns_ = 0;
  bool nothing_is_left_ = false;  // according to the guardian's newest notice
};

}  // namespace ddprun
