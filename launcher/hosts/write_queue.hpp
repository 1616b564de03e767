// Bytes that wait until a descriptor can be written without blocking. agent_supervisor.cpp and hosts_loop.cpp use it, since a
// broken network must not block their event loops. One thread only.
#pragma once

#include <cstddef>
#include <deque>
#include <string>

namespace ddprun {

class WriteQueue {
 public:
  static constexpr std::size_t kNoLimit = static_cast<std::size_t>(-1);

  void push(std::string bytes);
  bool empty() const { return parts_.empty(); }
  std::size_t bytes() const { return bytes_; }

  // Writes at most `max_bytes`, until the queue is empty or the descriptor would block. Written bytes are wiped, since they may
  // contain a token. Returns false if the other end is closed.
  bool write_to(int fd, std::size_t max_bytes);

  // Writes everything, also if the descriptor would block. Stops if the other end is closed.
  void write_blocking(int fd);

  // For a new descriptor: a part that was written only partially is written again from its start.
  void restart_part() { offset_ = 0; }

  // Adds the parts of another queue after the own ones.
  void append(WriteQueue other);

  // Drops the oldest parts until at most `max_bytes` are left. Returns the number of dropped bytes.
  std::size_t drop_above(std::size_t max_bytes);

 private:
  std::deque<std::string> parts_;
  std::size_t offset_ = 0;  // written bytes of the first part
  std::size_t bytes_ = 0;   // in all parts
};

}  // namespace ddprun
