// RAII for an open descriptor.
#pragma once

#include <unistd.h>

#include <utility>

namespace ddprun {

// Closes its descriptor, unless release() was called.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Descriptor before(std::exchange(fd_, std::exchange(other.fd_, -1)));  // closes the old descriptor on return
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

}  // namespace ddprun
