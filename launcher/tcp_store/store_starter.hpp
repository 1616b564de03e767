// The guardian's part of the store for scripts. It keeps the listening sockets until the first client connects. Then it forks
// the process that serves clients (store_process.hpp). It forwards that process's messages to the agent, which prints them for
// the user. The guardian's event loop (guardian_loop.hpp) owns it and calls it for events of its descriptors.
#pragma once

#include <sys/epoll.h>
#include <sys/types.h>

#include <csignal>
#include <string>
#include <vector>

#include "launcher/guardian/agent_socket.hpp"
#include "launcher/tcp_store/store_process.hpp"

namespace ddprun::guardian {

class StoreStarter {
 public:
  explicit StoreStarter(AgentSocket& agent) : agent_(agent) {}

  // Handles a kStore request, which carries one listening socket. After the round's last socket, the descriptors are added to
  // `epoll`.
  void take_socket(const ReceivedRequest& received, int epoll);
  // Handles an event. Returns false if its descriptor belongs to another component.
  bool on_ready(const epoll_event& event);
  // Call this for every child that the guardian has reaped. It reports an unexpected end of the store's process and ignores all
  // other children.
  void reaped(const siginfo_t& info);
  // Handles a kEndStore request: kills and reaps the store's process and closes all sockets. After this, no socket listens on
  // the port.
  void end();
  bool is_running() const { return pid_ > 0; }
  // Returns `children` without the store's process. At the end of a round the guardian waits for the remaining children, but
  // the store must keep running.
  std::vector<pid_t> without(std::vector<pid_t> children) const;

 private:
  void start();
  void notify(const std::string& text);
  void forward_notes();
  void close_listeners();
  void watch(int fd) const;
  void stop_watching(int fd) const;

  AgentSocket& agent_;
  int epoll_ = -1;
  script_store::StoreSockets sockets_;
  pid_t pid_ = -1;
  int notes_ = -1;          // read end of the pipe to which the store's process writes messages for the user; -1: none
  std::string unfinished_;  // an incomplete message that was read from `notes_`
};

}  // namespace ddprun::guardian
