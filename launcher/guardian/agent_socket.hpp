// The guardian's end of its socket to the agent. It receives requests, which may carry descriptors, and sends notices. Guardian
// (guardian_loop.hpp) owns it; guardian_link.hpp is the agent's end. No function here blocks: a stopped agent must not keep the
// guardian from reaping workers, and a full socket must not block both processes.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "common/system/descriptor.hpp"
#include "launcher/guardian/guardian_protocol.hpp"

namespace ddprun::guardian {

// A request of the agent and the descriptors that it carried.
struct ReceivedRequest {
  // Call these only for a kSpawn request. what_to_run() returns the packed program and throws std::system_error. channel()
  // returns -1 if the worker has no channel.
  std::vector<char> what_to_run() const;
  int channel() const;

  Request request;
  std::array<Descriptor, kMaxDescriptors> descriptors;
  std::vector<char> text{};  // bytes that followed the request
  int descriptor_count = 0;  // smaller than Request::descriptors if this process had no free descriptors
};

class AgentSocket {
 public:
  // Takes the guardian's end of the socket pair and makes it non-blocking.
  explicit AgentSocket(int socket);
  int descriptor() const { return socket_; }

  // Returns the next request that has arrived. Returns nullopt if there is none, or if the agent has exited.
  std::optional<ReceivedRequest> receive();
  // Returns true after the agent has closed its end, or if reading fails.
  bool agent_is_gone() const { return agent_gone_; }

  // Queues a notice. flush() sends it after all current work. If each notice of a started worker woke the agent immediately,
  // the agent and the starting workers would compete for CPUs.
  void notify(const Notice& notice);
  // Sends as many notices as the socket accepts now. The other notices remain queued for the next call.
  void flush();
  bool has_more_to_send() const { return !outbox_.empty(); }

 private:
  int socket_;
  std::unique_ptr<char[]> text_ = std::make_unique_for_overwrite<char[]>(kMaxPacketBytes);
  std::deque<Notice> outbox_;
  bool agent_gone_ = false;
};

}  // namespace ddprun::guardian
