// The store of a round's scripts, at the guardian: listening sockets until a first client knocks, then the process that serves
// them (launcher/store_process). guardian.cpp owns one, and passes it what is about it. It tells the agent what people should
// know of the process.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "launcher/guardian/agent_socket.hpp"
#include "launcher/store_process/store_process.hpp"

namespace ddprun::guardian {

class StoreStarter {
 public:
  explicit StoreStarter(AgentSocket& agent) : agent_(agent) {}

  // kStore. Its descriptors are watched with this epoll from the last socket of the round on.
  void take_socket(const ReceivedRequest& received, int epoll);
  // False: the event is of somebody else.
  bool on_ready(const epoll_event& event);
  // This child of the guardian's was reaped.
  void reaped(const siginfo_t& info);
  // kEndStore: kills and reaps the process, and closes all. Afterwards nothing listens there.
  void end();
  bool is_running() const { return pid_ > 0; }
  // The children that are not the store's process, which does not end with the workers.
  std::vector<pid_t> without(std::vector<pid_t> children) const;

 private:
  void start();
  void tell(const std::string& text);
  void tell_notes();
  void close_listeners();
  void watch(int fd) const;
  void stop_watching(int fd) const;

  AgentSocket& agent_;
  int epoll_ = -1;
  script_store::StoreSockets sockets_;
  pid_t pid_ = -1;
  int notes_ = -1;          // where the process writes lines for people; -1: nowhere
  std::string unfinished_;  // the beginning of a line
};

}  // namespace ddprun::guardian
