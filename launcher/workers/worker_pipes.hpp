// The descriptors that a worker is started with, and the agent's ends of them: pipes for what it prints, a socket pair for its
// channel. launcher/agent/round_workers.cpp makes them for the workers of a round, standby_processes.cpp for those that wait.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

#include "common/base/error.hpp"

namespace ddprun {

// A descriptor that closes itself unless it is given away.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

struct Ends {
  Descriptor ours;
  Descriptor workers;
};

// Ours does not block. Both throw InternalError when there are no descriptors left.
Ends output_pipe();
Ends channel_pair();

// What the system refuses while workers are started ends the job as any other reason does.
InternalError refused_by_system(const std::string& what, int error);

}  // namespace ddprun
