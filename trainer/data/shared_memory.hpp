// Memory that other processes of this machine and user can map while this one lives: what one worker has inflated is there for
// all. idx_file.cpp fills it; the name of it travels by inflated_files.hpp.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ddprun::trainer {

class SharedMemory {
 public:
  // Null where the system has none to give.
  static std::shared_ptr<SharedMemory> make(std::size_t size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::span<std::uint8_t> bytes() const { return {static_cast<std::uint8_t*>(address_), size_}; }
  std::string name() const;

 private:
  SharedMemory(int fd, void* address, std::size_t size) : fd_(fd), address_(address), size_(size) {}

  int fd_;
  void* address_;
  std::size_t size_;
};

// A descriptor to read from what another process made and still has; -1 when it is gone or may not be read.
int open_shared_memory(const std::string& name);

}  // namespace ddprun::trainer
