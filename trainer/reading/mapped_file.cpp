#include "trainer/reading/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/error.hpp"
#include "common/system/resource_errors.hpp"

namespace ddprun::trainer {
namespace {

[[noreturn]] void cannot_map(const std::filesystem::path& file, int error) {
  const std::string problem = file.string() + ": cannot be mapped: " + std::strerror(error);
  throw_if_resources_exhausted(error, problem);
  throw UsageError(problem);
}

Descriptor open_file(const std::filesystem::path& file) {
  Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // O_NONBLOCK: open() of a pipe must not block
  struct stat status {};
  if (opened.get() < 0 || ::fstat(opened.get(), &status) != 0) cannot_map(file, errno);
  if (S_ISREG(status.st_mode) && status.st_size > 0) return opened;
  throw UsageError(file.string() + (S_ISREG(status.st_mode) ? ": is empty" : ": is not a regular file"));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file) : MappedFile(open_file(file), file) {}

MappedFile::MappedFile(Descriptor opened, const std::filesystem::path& file) {
  struct stat status {};
  size_ = ::fstat(opened.get(), &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
  if (size_ > 0) address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, opened.get(), 0);
  if (address_ == MAP_FAILED) cannot_map(file, errno);
  if (address_ != nullptr) watch_.emplace(address_, size_, opened.get(), file);
}

MappedFile::~MappedFile() {
  watch_.reset();
  if (address_ != nullptr) ::munmap(address_, size_);
}

}  // namespace ddprun::trainer
