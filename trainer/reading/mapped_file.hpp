// A file that is mapped read-only into memory as a whole. trainer/reading/mapping_watch.hpp detects changes of the file while
// it is mapped.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>

#include "common/system/descriptor.hpp"
#include "trainer/reading/mapping_watch.hpp"

namespace ddprun::trainer {

class MappedFile {
 public:
  // Throws UsageError, which names the file, if the file is empty or cannot be mapped. If the machine lacks memory or
  // descriptors, throws the error of throw_if_resources_exhausted() instead.
  explicit MappedFile(const std::filesystem::path& file);
  // Maps an open file, which may be empty. `file` is its path for messages.
  MappedFile(Descriptor opened, const std::filesystem::path& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(address_), size_}; }

 private:
  void* address_ = nullptr;  // null if the file is empty
  std::size_t size_ = 0;
  std::optional<WatchedMapping> watch_;
};

}  // namespace ddprun::trainer
