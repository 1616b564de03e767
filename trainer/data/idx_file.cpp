// Reads an IDX file. A plain file is mapped, so workers on one machine share the pages. A gzip file is inflated in one call:
// libdeflate takes a third of zlib's time. zlib reads a file that libdeflate refuses and explains what is wrong with it. Called
// by dataset.cpp. No memory is allocated before the header is checked against the size that the file can hold.
#include "trainer/data/idx_file.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/system/refused_file.hpp"
#include "trainer/data/shared_memory.hpp"
#include "trainer/reading/mapping_watch.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestHeader = 16;
// Deflate codes at most 258 bytes with two bits: no stream grows by more than this (zlib's technical notes say 1032).
constexpr std::uint64_t kMostInflation = 1032;
// Image files grow about five times when inflated. A small file that claims much more is refused before its memory is
// allocated.
constexpr std::uint64_t kMostGrowth = 256;
constexpr std::uint64_t kAlwaysFits = std::uint64_t{1} << 26;  // bytes: below this size no growth is refused
constexpr std::uint64_t kMostMembers = std::uint64_t{1} << 20;

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

std::string hex8(std::uint32_t number) {
  std::array<char, 11> text{};
  std::snprintf(text.data(), text.size(), "0x%08x", number);
  return text.data();
}

[[noreturn]] void refuse(int error, const std::string& what, const char* advice) {
  const std::string message = what + ": " + std::strerror(error) + ".";
  throw_if_machine_lacks(error, message);
  throw UsageError(message + advice);
}

// A whole file, mapped read-only.
class Mapping {
 public:
  explicit Mapping(const fs::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // O_NONBLOCK: a FIFO is refused and does not block
    if (fd < 0) {
      refuse(errno, "can't open '" + path.string() + "'", " Check data.dir and its permissions.");
    }
    struct stat status {};
    if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
      ::close(fd);
      throw UsageError(c10::str("'", path.string(), "' is not a regular file; expected an IDX file. Check data.dir."));
    }
    map(fd, path);
  }
  // Takes ownership of the descriptor. The caller has checked the file.
  Mapping(int fd, const fs::path& path) { map(fd, path); }
  ~Mapping() {
    watch_.reset();
    if (address_ != nullptr) {
      ::munmap(address_, size_);
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::span<const std::uint8_t> bytes() const { return {static_cast<const std::uint8_t*>(address_), size_}; }

 private:
  void map(int fd, const fs::path& path) {
    struct stat status {};
    size_ = ::fstat(fd, &status) == 0 ? static_cast<std::size_t>(status.st_size) : 0;
    if (size_ > 0) {
      address_ = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd, 0);
    }
    const int error = errno;
    if (address_ != nullptr && address_ != MAP_FAILED) watch_.emplace(address_, size_, fd, path);
    ::close(fd);
    if (address_ == MAP_FAILED) {
      refuse(error, "can't read '" + path.string() + "'", "");
    }
  }

  void* address_ = nullptr;
  std::size_t size_ = 0;
  std::optional<WatchedMapping> watch_;
};

// Inflates a gzip file in pieces; it may have several members (RFC 1952).
class Gunzip {
 public:
  Gunzip(std::span<const std::uint8_t> input, const fs::path& path) : input_(input), path_(path) {
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~Gunzip() { ::inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  // Fills `output` until the file ends; returns the bytes written. Throws UsageError for a damaged file.
  std::size_t read(std::span<std::uint8_t> output) {
    std::size_t written = 0;
    while (written < output.size() && !ended_) {
      // zlib counts in 32 bits, so large files are read in pieces.
      const auto room = static_cast<uInt>(std::min<std::size_t>(output.size() - written, 1U << 30));
      stream_.next_out = output.data() + written;
      stream_.avail_out = room;
      inflate_some();
      written += room - stream_.avail_out;
    }
    return written;
  }

 private:
  void inflate_some() {
    const auto offered = static_cast<uInt>(std::min<std::size_t>(input_.size() - consumed_, 1U << 30));
    stream_.next_in = const_cast<Bytef*>(input_.data() + consumed_);  // zlib's interface; it does not write there
    stream_.avail_in = offered;
    const uInt room = stream_.avail_out;
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    consumed_ += offered - stream_.avail_in;
    if (result == Z_STREAM_END) {
      next_member();
    } else if (result == Z_BUF_ERROR || (result == Z_OK && offered == 0 && stream_.avail_out == room)) {
      throw UsageError(c10::str("'", path_.string(), "' is truncated: its gzip stream ends after ", input_.size(),
                                " bytes, in the middle of the data. Fetch it again."));
    } else if (result != Z_OK) {
      throw UsageError(c10::str("'", path_.string(), "' is damaged: its gzip stream is invalid near byte ", consumed_, " (",
                                stream_.msg != nullptr ? stream_.msg : "no detail", "). Fetch it again."));
    }
  }

  void next_member() {
    if (++members_ > kMostMembers) {
      throw UsageError(c10::str("'", path_.string(), "' has more than ", kMostMembers, " gzip members; compress it in one"));
    }
    if (consumed_ == input_.size()) {
      ended_ = true;
    } else if (::inflateReset(&stream_) != Z_OK) {
      throw InternalError("zlib could not be reset");
    }
  }

  std::span<const std::uint8_t> input_;
  fs::path path_;
  z_stream stream_{};
  std::size_t consumed_ = 0;
  std::uint64_t members_ = 0;
  bool ended_ = false;
};

struct Header {
  std::vector<std::int64_t> dims;
  std::uint64_t header_bytes = 0;
  std::uint64_t data_bytes = 0;
};

const char* kind_name(IdxKind kind) {
  return kind == IdxKind::kLabels ? "labels" : "images";
}

UsageError wrong_length(const fs::path& path, const char* what, std::uint64_t expected, const std::string& found) {
  return UsageError(c10::str("'", path.string(), "' is ", what, ": its header announces ", expected, " bytes in all, found ",
                             found, ". Fetch it again."));
}

// `start`: the first kLongestHeader bytes, or the whole of a shorter file.
Header parse_header(std::span<const std::uint8_t> start, IdxKind kind, const fs::path& path) {
  const std::size_t dimensions = kind == IdxKind::kLabels ? 1 : 3;
  const std::uint32_t expected = 0x0800U | static_cast<std::uint32_t>(dimensions);
  const std::size_t header_bytes = 4 + 4 * dimensions;
  if (start.size() >= 4 && big_endian(start.data()) != expected) {
    throw UsageError(c10::str("'", path.string(), "' is not an IDX file of ", kind_name(kind), " (unsigned bytes, ", dimensions,
                              " dimension", dimensions == 1 ? "" : "s", "): expected magic ", hex8(expected), ", found ",
                              hex8(big_endian(start.data())), ". Check data.dir and the file names in data."));
  }
  if (start.size() < header_bytes) {
    throw UsageError(c10::str("'", path.string(), "' is truncated: expected an IDX header of ", header_bytes, " bytes, found ",
                              start.size(), ". Fetch it again."));
  }
  Header header;
  header.header_bytes = header_bytes;
  header.data_bytes = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    const std::uint64_t dim = big_endian(start.data() + 4 + 4 * i);
    if (dim == 0) {
      throw UsageError(
          c10::str("'", path.string(), "' is empty: dimension ", i + 1, " of its IDX header is 0; expected at least 1."));
    }
    if (__builtin_mul_overflow(header.data_bytes, dim, &header.data_bytes) || header.data_bytes > (std::uint64_t{1} << 62)) {
      throw UsageError(
          c10::str("'", path.string(), "' has an impossible IDX header: its dimensions are too large. Fetch it again."));
    }
    header.dims.push_back(static_cast<std::int64_t>(dim));
  }
  return header;
}

Header plain_header(const Mapping& mapping, IdxKind kind, const fs::path& path) {
  return parse_header(mapping.bytes().first(std::min(mapping.bytes().size(), kLongestHeader)), kind, path);
}

at::Tensor map_plain(std::shared_ptr<Mapping> mapping, IdxKind kind, const fs::path& path) {
  const auto bytes = mapping->bytes();
  const Header header = plain_header(*mapping, kind, path);
  const std::uint64_t expected = header.header_bytes + header.data_bytes;
  if (bytes.size() != expected) {
    throw wrong_length(path, bytes.size() < expected ? "truncated" : "too long", expected, std::to_string(bytes.size()));
  }
  void* data = const_cast<std::uint8_t*>(bytes.data() + header.header_bytes);
  return at::from_blob(
      data, header.dims, [mapping](void*) {}, at::TensorOptions().dtype(at::kByte));
}

// Allocates memory for the inflated bytes.
using MakeRoom = std::function<at::Tensor(std::int64_t size)>;

at::Tensor own_memory(std::int64_t size) {
  return at::detail::empty_cpu({size}, at::kByte);
}

// Inflates an intact file of one gzip member with exactly as much data as its IDX header announces. Returns an undefined tensor
// for any other file.
at::Tensor inflate_sound_gzip(std::span<const std::uint8_t> bytes, const Header& header, const MakeRoom& make_room) {
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflater(
      ::libdeflate_alloc_decompressor(), &::libdeflate_free_decompressor);
  const auto size = static_cast<std::int64_t>(header.header_bytes + header.data_bytes);
  const at::Tensor whole = make_room(size);
  std::size_t consumed = 0;
  const libdeflate_result result =
      inflater == nullptr
          ? LIBDEFLATE_BAD_DATA
          : ::libdeflate_gzip_decompress_ex(inflater.get(), bytes.data(), bytes.size(), whole.mutable_data_ptr(),
                                            static_cast<std::size_t>(size), &consumed, /*exact size*/ nullptr);
  if (result != LIBDEFLATE_SUCCESS || consumed != bytes.size()) return {};
  return whole.slice(0, static_cast<std::int64_t>(header.header_bytes)).view(header.dims);
}

Header inflate_header(Gunzip& gunzip, IdxKind kind, const fs::path& path) {
  std::array<std::uint8_t, kLongestHeader> start{};
  // The header of labels is shorter than that of images. Read only the header here: the rest goes straight into the tensor.
  const std::size_t wanted = kind == IdxKind::kLabels ? 8 : 16;
  const std::size_t got = gunzip.read(std::span(start).first(wanted));
  return parse_header(std::span(start).first(got), kind, path);
}

at::Tensor inflate_gzip(const Mapping& mapping, IdxKind kind, const fs::path& path, const MakeRoom& make_room) {
  Gunzip gunzip(mapping.bytes(), path);
  const Header header = inflate_header(gunzip, kind, path);
  const std::uint64_t expected = header.header_bytes + header.data_bytes;
  if (expected / kMostInflation > mapping.bytes().size()) {
    throw wrong_length(path, "truncated", expected,
                       c10::str("a gzip file of only ", mapping.bytes().size(), " bytes, which can't hold them"));
  }
  if (expected > kAlwaysFits && expected / kMostGrowth > mapping.bytes().size()) {
    throw UsageError(c10::str("'", path.string(), "' has ", mapping.bytes().size(), " bytes and its header announces ",
                              expected, "; a gzip file may hold at most ", kMostGrowth,
                              " times its own bytes here. Store it without compression."));
  }
  if (at::Tensor sound = inflate_sound_gzip(mapping.bytes(), header, make_room); sound.defined()) return sound;

  at::Tensor tensor = at::detail::empty_cpu(header.dims, at::kByte);
  const std::size_t filled = gunzip.read({tensor.mutable_data_ptr<std::uint8_t>(), header.data_bytes});
  if (filled < header.data_bytes) {
    throw wrong_length(path, "truncated", expected, c10::str(header.header_bytes + filled, " after decompression"));
  }
  // Reading past the end also makes zlib check the trailer's CRC.
  std::uint8_t surplus = 0;
  if (gunzip.read({&surplus, 1}) != 0) {
    throw wrong_length(path, "too long", expected, "more after decompression");
  }
  return tensor;
}

// "Does not exist" and "cannot be checked" need different remedies, so they get different messages.
bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::status_known(status)) {
    refuse(error.value(), "can't look for '" + path.string() + "'", " Check data.dir, its permissions and the links in it.");
  }
  return fs::exists(status);
}

fs::path choose_file(const fs::path& dir, const std::string& name) {
  const fs::path plain = dir / name;
  const fs::path compressed = dir / (name + ".gz");
  if (is_there(plain)) return plain;
  if (is_there(compressed)) return compressed;
  std::string where;
  if (!is_there(dir)) {
    where = c10::str(" (there is no folder '", dir.string(), "')");
  } else if (!fs::is_directory(dir)) {
    where = c10::str(" ('", dir.string(), "' is not a folder)");
  }
  throw UsageError(
      c10::str("data set missing: found neither '", plain.string(), "' nor '", compressed.string(), "'", where,
               ". Check data.dir; on Debian, the package dataset-fashion-mnist brings /usr/share/datasets/fashion-mnist."));
}

bool is_gzip(const Mapping& mapping) {
  const auto bytes = mapping.bytes();
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

// Inflates into memory that other workers can map. They get its name when it is complete, or an empty name if that failed.
at::Tensor inflate_for_all(const Mapping& mapping, IdxKind kind, const fs::path& path, const InflatedFiles& shared) {
  struct Offer {
    const InflatedFiles& shared;
    const std::string file;
    std::string memory;
    ~Offer() { shared.offer(file, memory); }
  } offer{shared, path.filename().string(), ""};
  std::shared_ptr<SharedMemory> memory;
  at::Tensor tensor = inflate_gzip(mapping, kind, path, [&](std::int64_t size) {
    memory = SharedMemory::make(static_cast<std::size_t>(size));
    if (!memory) return own_memory(size);
    return at::from_blob(
        memory->bytes().data(), {size}, [memory](void*) {}, at::TensorOptions().dtype(at::kByte));
  });
  const bool is_there = memory && tensor.storage().data() == memory->bytes().data();
  if (is_there) offer.memory = memory->name();
  return tensor;
}

// Maps the file as inflated by another worker of this machine. Null if there is none, or if its memory is gone.
std::shared_ptr<Mapping> inflated_by_another(const fs::path& path, const InflatedFiles& shared) {
  const std::string memory = shared.find ? shared.find(path.filename().string()) : "";
  const int fd = memory.empty() ? -1 : open_shared_memory(memory);
  return fd < 0 ? nullptr : std::make_shared<Mapping>(fd, path);
}

}  // namespace

std::vector<std::int64_t> read_idx_dimensions(const fs::path& dir, const std::string& name, IdxKind kind) {
  const fs::path path = choose_file(dir, name);
  const Mapping mapping(path);
  if (!is_gzip(mapping)) return plain_header(mapping, kind, path).dims;
  Gunzip gunzip(mapping.bytes(), path);
  return inflate_header(gunzip, kind, path).dims;
}

IdxFile read_idx_file(const fs::path& dir, const std::string& name, IdxKind kind, const InflatedFiles& shared) {
  const fs::path path = choose_file(dir, name);
  const auto mapping = std::make_shared<Mapping>(path);
  if (!is_gzip(*mapping)) return {path, map_plain(mapping, kind, path)};
  if (shared.offer) return {path, inflate_for_all(*mapping, kind, path, shared)};
  if (const auto inflated = inflated_by_another(path, shared)) return {path, map_plain(inflated, kind, path)};
  return {path, inflate_gzip(*mapping, kind, path, own_memory)};
}

}  // namespace ddprun::trainer
