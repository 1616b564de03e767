// Functions that the fuzzers of file readers share. A reader opens its file by name. So a fuzzer writes its bytes to a file in
// memory (/dev/shm) and passes the name of that file. A reader may return, or throw a ddprun::Error. Findings are any other
// exception, a sanitizer report, and memory use above libFuzzer's limit.
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "common/base/error.hpp"

namespace ddprun::fuzz {

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// A folder in memory, which is removed when the process ends.
class Folder {
 public:
  Folder() {
    std::array<char, 32> name{"/dev/shm/ddprun-fuzz-XXXXXX"};
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name.data();
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

inline const Folder& folder() {
  static const Folder made;
  return made;
}

// Calls a function that reads a file. It may return or throw a ddprun::Error. Any other exception ends the fuzzer as a
// finding.
template <class Read>
int accepted_or_refused(Read read) {
  try {
    read();
  } catch (const Error&) {
  }
  return 0;
}

}  // namespace ddprun::fuzz
