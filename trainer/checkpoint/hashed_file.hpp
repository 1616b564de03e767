// Files with a checksum (XXH3-128), which a checkpoint's manifest lists. One pass writes a file and computes its checksum. A
// write is complete when the file is synced to the disk. Verification reads the file again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "common/system/descriptor.hpp"
#include "trainer/checkpoint/direct_writer.hpp"

namespace ddprun::trainer {

// Length and checksum of a file, as listed in the manifest.
struct FileFacts {
  std::int64_t bytes = 0;
  std::string xxh3_128;  // 32 lower-case hex digits, most significant first, as xxh128sum prints them
  bool operator==(const FileFacts&) const = default;
};

std::string xxh3_128_of(std::string_view bytes);

// Checksum over bytes that arrive in several pieces.
class Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;
  void add(std::string_view bytes);
  std::string xxh3_128() const;

 private:
  struct Hash;
  std::unique_ptr<Hash> hash_;
};

// Reads the file to compute its checksum. Throws std::system_error with the path if the file can't be read.
FileFacts facts_of_file(const std::filesystem::path& file);

class HashedFileWriter {
 public:
  // Creates the file, which must not exist. `expected_bytes` is the approximate final length: a large file bypasses the page
  // cache where possible (direct_writer.hpp). All members throw std::system_error with the path.
  explicit HashedFileWriter(const std::filesystem::path& file, std::int64_t expected_bytes = 0);

  void write(std::string_view bytes);
  // Syncs the file's content to disk and closes it.
  FileFacts finish();

 private:
  void write_through_cache(std::string_view bytes);
  void begin_writeback();
  void set_length(std::int64_t bytes);

  std::filesystem::path file_;
  Descriptor opened_;
  std::int64_t bytes_ = 0;
  std::int64_t writeback_end_ = 0;
  std::int64_t length_ = 0;  // bytes allocated in advance
  Checksum checksum_;
  // The writer of a large file; null if writes use the page cache. The threads of this writer use opened_ until the writer is
  // destroyed.
  std::unique_ptr<DirectWriter> direct_;
};

}  // namespace ddprun::trainer
