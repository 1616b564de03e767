// A whole file, mapped read-only. trainer/reading/mapping_watch.hpp detects changes of the file while it is mapped.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/error.hpp"
#include "common/system/refused_file.hpp"
#include "trainer/reading/mapping_watch.hpp"

namespace ddprun::trainer {

class MappedFile {
 public:
  // Throws UsageError with the file's name if it is empty or can't be mapped. If the machine lacks memory or descriptors,
  // throws the error of throw_if_machine_lacks().
  explicit MappedFile(const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(address_), size_}; }

 private:
  void* address_ = nullptr;
  std::size_t size_ = 0;
  std::optional<WatchedMapping> watch_;
};

inline MappedFile::MappedFile(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: opening a pipe must not block
  struct stat status {};
  const bool found = fd >= 0 && ::fstat(fd, &status) == 0;
  const bool is_file = found && S_ISREG(status.st_mode);
  void* address = MAP_FAILED;
  if (is_file && status.st_size > 0) {
    size_ = static_cast<std::size_t>(status.st_size);
    address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
  }
  const int error = errno;
  if (address != MAP_FAILED) watch_.emplace(address, size_, fd, file);
  if (fd >= 0) ::close(fd);
  if (found && !is_file) throw UsageError(file.string() + ": is no regular file");
  if (found && status.st_size == 0) throw UsageError(file.string() + ": is empty");
  if (address == MAP_FAILED) {
    const std::string problem = file.string() + ": cannot be mapped: " + std::strerror(error);
    throw_if_machine_lacks(error, problem);
    throw UsageError(problem);
  }
  address_ = address;
}

inline MappedFile::~MappedFile() {
  watch_.reset();
  ::munmap(address_, size_);
}

}  // namespace ddprun::trainer
