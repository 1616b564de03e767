// The guardian's part of the store for a round's scripts. It keeps the listening sockets until a first client connects, then
// starts the process that serves them (launcher/store_process). guardian.cpp owns one and passes it the events of its
// descriptors. It sends the agent the lines that the process writes for the user.
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

  // kStore. When the last socket of the round has arrived, all its sockets are watched with this epoll.
  void take_socket(const ReceivedRequest& received, int epoll);
  // False: the event belongs to another descriptor.
  bool on_ready(const epoll_event& event);
  // A child of the guardian was reaped.
  void reaped(const siginfo_t& info);
  // kEndStore: kills and reaps the process, and closes all sockets. Afterwards nothing listens at the port.
  void end();
  bool is_running() const { return pid_ > 0; }
  // `children` without the store's process, since it does not end with the workers.
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
  int notes_ = -1;          // pipe to which the process writes lines for the user; -1: none
  std::string unfinished_;  // the beginning of a line
};

}  // namespace ddprun::guardian
