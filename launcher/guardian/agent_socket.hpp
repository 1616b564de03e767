// The guardian's end of its socket to the agent: requests with their descriptors come in, notices go out. guardian.cpp owns one
// and watches its descriptor; guardian_link.hpp is the other end. Nothing here blocks. A stopped agent must not keep the
// guardian from reaping, and a full socket must not block both sides.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/guardian/guardian_protocol.hpp"

namespace ddprun::guardian {

// A request and the descriptors that came with it. The destructor closes the descriptors.
class ReceivedRequest {
 public:
  ReceivedRequest() = default;
  ~ReceivedRequest();
  ReceivedRequest(ReceivedRequest&& other) noexcept;
  ReceivedRequest& operator=(ReceivedRequest&&) = delete;

  // For a spawn request only. what_to_run() throws std::system_error; channel() is -1 for a worker without a channel.
  std::vector<char> what_to_run() const;
  int channel() const;

  Request request;
  std::array<int, kMaxDescriptors> descriptors{-1, -1, -1, -1};
  std::vector<char> text;    // bytes that followed the request
  int descriptor_count = 0;  // fewer than Request::descriptors if this process has no free ones
};

class AgentSocket {
 public:
  // Makes the socket non-blocking.
  explicit AgentSocket(int socket);
  int descriptor() const { return socket_; }

  // The next request that has arrived. nullopt if there is none or the agent has gone.
  std::optional<ReceivedRequest> receive();
  // The agent has closed its end, or its end cannot be read.
  bool agent_is_gone() const { return agent_gone_; }

  // Queues a notice. flush() sends it when all current work is done. If the agent were woken for each started worker, it would
  // use the CPUs on which the workers start.
  void tell(const Notice& notice);
  // Sends as many notices as the socket accepts now. The rest waits for the next call.
  void flush();
  bool has_more_to_send() const { return !outbox_.empty(); }

 private:
  int socket_;
  std::unique_ptr<char[]> text_ = std::make_unique_for_overwrite<char[]>(kMostInMessage);
  std::deque<Notice> outbox_;
  bool agent_gone_ = false;
};

}  // namespace ddprun::guardian
