// Memory that other processes of this machine and user can map while this object lives: one worker inflates for all.
// idx_file.cpp fills it; inflated_files.hpp carries its name.
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
  // Returns null if the system has no memory for it.
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

// Opens another process's memory for reading. Returns -1 if it is gone or may not be read.
int open_shared_memory(const std::string& name);

}  // namespace ddprun::trainer
