// RAII for an open file descriptor, and a function that compares an open file with a path.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

namespace ddprun {

// Owns a file descriptor, or -1 if there is none. The destructor closes the descriptor, unless release() was called.
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

// Returns true if `path` names the open file. Code that takes locks needs this: the path may have been renamed or replaced
// since the file was opened.
inline bool is_same_file(int fd, const std::filesystem::path& path) {
  struct stat opened {
  }, named{};
  return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 && opened.st_dev == named.st_dev &&
         opened.st_ino == named.st_ino;
}

}  // namespace ddprun
