// The guardian's end of its socket to the agent: requests with their descriptors come in, notices go out. guardian.cpp owns one
// and watches its descriptor; guardian_link.hpp is the other end. Nothing here blocks: a stopped agent must not keep the
// guardian from reaping, nor a full socket both of them.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "launcher/guardian/guardian_protocol.hpp"

namespace ddprun::guardian {

// A request, and the descriptors that came with it. The destructor closes them.
class ReceivedRequest {
 public:
  ReceivedRequest() = default;
  ~ReceivedRequest();
  ReceivedRequest(ReceivedRequest&& other) noexcept;
  ReceivedRequest& operator=(ReceivedRequest&&) = delete;

  // Of a spawn request. The first throws std::system_error; the second is -1 for a worker without one.
  std::vector<char> what_to_run() const;
  int channel() const;

  Request request;
  std::array<int, kMaxDescriptors> descriptors{-1, -1, -1, -1};
  std::vector<char> text;    // what followed the request
  int descriptor_count = 0;  // fewer than the request says when this process has no free descriptors
};

class AgentSocket {
 public:
  // Makes the socket non-blocking.
  explicit AgentSocket(int socket);
  int descriptor() const { return socket_; }

  // The next request that has arrived. Nothing when there is none, or the agent is gone.
  std::optional<ReceivedRequest> receive();
  // The agent has closed its end, or its end cannot be read.
  bool agent_is_gone() const { return agent_gone_; }

  // Queues a notice. flush() sends it when all work at hand is done: an agent that is woken for each worker that it has asked
  // for would use the CPUs on which they start.
  void tell(const Notice& notice);
  // Sends what the socket takes now. The rest waits for the next call.
  void flush();
  bool has_more_to_send() const { return !outbox_.empty(); }

 private:
  int socket_;
  std::unique_ptr<char[]> text_ = std::make_unique_for_overwrite<char[]>(kMostInMessage);
  std::deque<Notice> outbox_;
  bool agent_gone_ = false;
};

}  // namespace ddprun::guardian
