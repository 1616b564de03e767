// Bytes that wait until a descriptor can be written without blocking. agent_supervisor.cpp and hosts_loop.cpp use it, since a
// broken network must not block their event loops. Use it on one thread only.
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

  // Writes everything, and blocks while the descriptor is not writable. Stops if the other end is closed.
  void write_blocking(int fd);

  // Call this for a new descriptor. A part that was written only partially is then written again from its start.
  void restart_part() { offset_ = 0; }

  // Adds the parts of another queue after the parts of this queue.
  void append(WriteQueue other);

  // Drops the oldest parts until at most `max_bytes` are left. Returns the number of dropped bytes.
  std::size_t drop_above(std::size_t max_bytes);

 private:
  std::deque<std::string> parts_;
  std::size_t offset_ = 0;  // number of bytes of the first part that were written
  std::size_t bytes_ = 0;   // number of bytes in all parts
};

}  // namespace ddprun
