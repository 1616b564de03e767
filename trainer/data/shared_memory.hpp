// Memory that other processes of the same machine and user can map while this object exists. One worker inflates a data set
// into this memory for all workers (idx_file.cpp). It sends the memory's name to the other workers (inflated_files.hpp).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "common/system/descriptor.hpp"

namespace ddprun::trainer {

class SharedMemory {
 public:
  // Returns null if the system can't provide the memory.
  static std::shared_ptr<SharedMemory> make(std::size_t size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  std::span<std::uint8_t> bytes() const { return {static_cast<std::uint8_t*>(address_), size_}; }
  std::string name() const;

 private:
  SharedMemory(Descriptor opened, void* address, std::size_t size)
      : opened_(std::move(opened)), address_(address), size_(size) {}

  Descriptor opened_;
  void* address_;
  std::size_t size_;
};

// Opens the memory of another process for reading. Returns no descriptor if the memory no longer exists or may not be read.
Descriptor open_shared_memory(const std::string& name);

}  // namespace ddprun::trainer
