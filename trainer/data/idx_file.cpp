// Reads an IDX file. A plain file is mapped, so workers on one machine share the pages. A gzip file is inflated by libdeflate,
// which takes a third of zlib's time. If libdeflate refuses a file, zlib reads the file and reports the error precisely.
// dataset.cpp calls this code. The header is checked against the file's size before memory is allocated.
#include "trainer/data/idx_file.hpp"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/StringUtil.h>
#include <fcntl.h>
#include <libdeflate.h>
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
#include <span>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/system/resource_errors.hpp"
#include "trainer/data/shared_memory.hpp"
#include "trainer/reading/mapped_file.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxHeaderSize = 16;
// Maximum ratio of output to input bytes: deflate encodes at most 258 bytes in two bits (zlib's technical notes: 1032).
constexpr std::uint64_t kMaxInflation = 1032;
// Inflated image files are about five times as large as compressed ones. A small file whose header announces much more data is
// refused before memory is allocated.
constexpr std::uint64_t kMaxGrowth = 256;
// A file whose inflated size is at most this number of bytes is accepted, even if it grows by more than the factor kMaxGrowth.
constexpr std::uint64_t kAlwaysFits = std::uint64_t{1} << 26;
constexpr std::uint64_t kMaxMembers = std::uint64_t{1} << 20;

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
  throw_if_resources_exhausted(error, message);
  throw UsageError(message + advice);
}

Descriptor open_idx(const fs::path& path) {
  // With O_NONBLOCK, open() of a FIFO returns immediately, and the FIFO is refused below.
  Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (opened.get() < 0) refuse(errno, "cannot open '" + path.string() + "'", " Check data.dir and its permissions.");
  struct stat status {};
  if (::fstat(opened.get(), &status) == 0 && S_ISREG(status.st_mode)) return opened;
  throw UsageError(c10::str("'", path.string(), "' is not a regular file; expected an IDX file. Check data.dir."));
}

std::span<const std::uint8_t> idx_bytes(const MappedFile& file) {
  return {reinterpret_cast<const std::uint8_t*>(file.bytes().data()), file.bytes().size()};
}

// Inflates a gzip file in pieces. The file may have several gzip members (RFC 1952).
class Gunzip {
 public:
  Gunzip(std::span<const std::uint8_t> input, const fs::path& path) : input_(input), path_(path) {
    if (::inflateInit2(&stream_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  ~Gunzip() { ::inflateEnd(&stream_); }
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  // Fills `output`, or stops at the end of the file. Returns the number of bytes written. Throws UsageError for a damaged file.
  std::size_t read(std::span<std::uint8_t> output) {
    std::size_t written = 0;
    while (written < output.size() && !ended_) {
      // zlib counts in 32 bits, so large files are read in pieces.
      const auto space = static_cast<uInt>(std::min<std::size_t>(output.size() - written, 1U << 30));
      stream_.next_out = output.data() + written;
      stream_.avail_out = space;
      inflate_some();
      written += space - stream_.avail_out;
    }
    return written;
  }

 private:
  void inflate_some() {
    const auto offered = static_cast<uInt>(std::min<std::size_t>(input_.size() - consumed_, 1U << 30));
    // zlib takes a non-const pointer, but does not write to the input.
    stream_.next_in = const_cast<Bytef*>(input_.data() + consumed_);
    stream_.avail_in = offered;
    const uInt space = stream_.avail_out;
    const int result = ::inflate(&stream_, Z_NO_FLUSH);
    consumed_ += offered - stream_.avail_in;
    if (result == Z_STREAM_END) {
      next_member();
    } else if (result == Z_BUF_ERROR || (result == Z_OK && offered == 0 && stream_.avail_out == space)) {
      throw UsageError(c10::str("'", path_.string(), "' is truncated: its gzip stream ends after ", input_.size(),
                                " bytes, in the middle of the data. Download the file again."));
    } else if (result != Z_OK) {
      throw UsageError(c10::str("'", path_.string(), "' is damaged: its gzip stream is invalid near byte ", consumed_, " (",
                                stream_.msg != nullptr ? stream_.msg : "no detail", "). Download the file again."));
    }
  }

  void next_member() {
    if (++members_ > kMaxMembers) {
      throw UsageError(c10::str("'", path_.string(), "' has more than ", kMaxMembers,
                                " gzip members; compress the file again as a single member"));
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
  return UsageError(c10::str("'", path.string(), "' is ", what, ": its header states a total of ", expected, " bytes; found ",
                             found, ". Download the file again."));
}

// `start` has the first kMaxHeaderSize bytes of the file, or the whole file if it is shorter.
Header parse_header(std::span<const std::uint8_t> start, IdxKind kind, const fs::path& path) {
  const std::size_t dimensions = kind == IdxKind::kLabels ? 1 : 3;
  const std::uint32_t expected = 0x0800U | static_cast<std::uint32_t>(dimensions);
  const std::size_t header_bytes = 4 + 4 * dimensions;
  if (start.size() >= 4 && big_endian(start.data()) != expected) {
    throw UsageError(c10::str("'", path.string(), "' is not an IDX file of ", kind_name(kind), " (unsigned bytes, ", dimensions,
                              " dimension", dimensions == 1 ? "" : "s", "): expected magic number ", hex8(expected), ", found ",
                              hex8(big_endian(start.data())),
                              ". Check data.dir and the file names in the \"data\" section of the config."));
  }
  if (start.size() < header_bytes) {
    throw UsageError(c10::str("'", path.string(), "' is truncated: expected an IDX header of ", header_bytes, " bytes, found ",
                              start.size(), ". Download the file again."));
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
      throw UsageError(c10::str("'", path.string(),
                                "' has an impossible IDX header: its dimensions are too large. Download the file again."));
    }
    header.dims.push_back(static_cast<std::int64_t>(dim));
  }
  return header;
}

Header plain_header(const MappedFile& file, IdxKind kind, const fs::path& path) {
  const auto bytes = idx_bytes(file);
  return parse_header(bytes.first(std::min(bytes.size(), kMaxHeaderSize)), kind, path);
}

at::Tensor map_plain(std::shared_ptr<MappedFile> file, IdxKind kind, const fs::path& path) {
  const auto bytes = idx_bytes(*file);
  const Header header = plain_header(*file, kind, path);
  const std::uint64_t expected = header.header_bytes + header.data_bytes;
  if (bytes.size() != expected) {
    throw wrong_length(path, bytes.size() < expected ? "truncated" : "too long", expected, std::to_string(bytes.size()));
  }
  void* data = const_cast<std::uint8_t*>(bytes.data() + header.header_bytes);
  return at::from_blob(
      data, header.dims, [file](void*) {}, at::TensorOptions().dtype(at::kByte));
}

// Allocates memory for the inflated bytes.
using Allocate = std::function<at::Tensor(std::int64_t size)>;

at::Tensor own_memory(std::int64_t size) {
  return at::detail::empty_cpu({size}, at::kByte);
}

// Inflates a gzip file that has a single member and exactly as much data as its IDX header announces. Returns an undefined
// tensor for any other file.
at::Tensor inflate_valid_gzip(std::span<const std::uint8_t> bytes, const Header& header, const Allocate& allocate) {
  const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflater(
      ::libdeflate_alloc_decompressor(), &::libdeflate_free_decompressor);
  const auto size = static_cast<std::int64_t>(header.header_bytes + header.data_bytes);
  const at::Tensor whole = allocate(size);
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
  std::array<std::uint8_t, kMaxHeaderSize> start{};
  // The header of a label file is shorter than the header of an image file. Only the header is read here, because the rest is
  // inflated directly into the tensor.
  const std::size_t wanted = kind == IdxKind::kLabels ? 8 : 16;
  const std::size_t got = gunzip.read(std::span(start).first(wanted));
  return parse_header(std::span(start).first(got), kind, path);
}

at::Tensor inflate_gzip(const MappedFile& file, IdxKind kind, const fs::path& path, const Allocate& allocate) {
  const auto bytes = idx_bytes(file);
  Gunzip gunzip(bytes, path);
  const Header header = inflate_header(gunzip, kind, path);
  const std::uint64_t expected = header.header_bytes + header.data_bytes;
  if (expected / kMaxInflation > bytes.size()) {
    throw wrong_length(path, "truncated", expected,
                       c10::str("a gzip file of only ", bytes.size(), " bytes, which is too small for that total"));
  }
  if (expected > kAlwaysFits && expected / kMaxGrowth > bytes.size()) {
    throw UsageError(c10::str("'", path.string(), "' has ", bytes.size(), " bytes, but its header states ", expected,
                              " bytes after decompression; a gzip file may expand to at most ", kMaxGrowth,
                              " times its size. Store the file without compression."));
  }
  if (at::Tensor sound = inflate_valid_gzip(bytes, header, allocate); sound.defined()) return sound;

  at::Tensor tensor = at::detail::empty_cpu(header.dims, at::kByte);
  const std::size_t filled = gunzip.read({tensor.mutable_data_ptr<std::uint8_t>(), header.data_bytes});
  if (filled < header.data_bytes) {
    throw wrong_length(path, "truncated", expected, c10::str(header.header_bytes + filled, " after decompression"));
  }
  // Reading one byte past the expected end also makes zlib check the CRC in the trailer.
  std::uint8_t surplus = 0;
  if (gunzip.read({&surplus, 1}) != 0) throw wrong_length(path, "too long", expected, "more bytes after decompression");
  return tensor;
}

// "Does not exist" and "cannot be checked" need different remedies, so they get different messages.
bool is_there(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::status_known(status)) {
    refuse(error.value(), "cannot access '" + path.string() + "'", " Check data.dir, its permissions and the links in it.");
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
    where = c10::str(" (the folder '", dir.string(), "' does not exist)");
  } else if (!fs::is_directory(dir)) {
    where = c10::str(" ('", dir.string(), "' is not a folder)");
  }
  throw UsageError(
      c10::str("data set missing: found neither '", plain.string(), "' nor '", compressed.string(), "'", where,
               ". Check data.dir; on Debian, the package dataset-fashion-mnist installs /usr/share/datasets/fashion-mnist."));
}

bool is_gzip(const MappedFile& file) {
  const auto bytes = idx_bytes(file);
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

// Inflates into shared memory. The other workers receive the memory's name when the data is complete, or an empty name if
// inflating has failed.
at::Tensor inflate_shared(const MappedFile& file, IdxKind kind, const fs::path& path, const InflatedFiles& shared) {
  struct Offer {
    const InflatedFiles& shared;
    const std::string file;
    std::string memory;
    ~Offer() { shared.offer(file, memory); }
  } offer{shared, path.filename().string(), ""};
  std::shared_ptr<SharedMemory> memory;
  at::Tensor tensor = inflate_gzip(file, kind, path, [&](std::int64_t size) {
    memory = SharedMemory::make(static_cast<std::size_t>(size));
    if (!memory) return own_memory(size);
    return at::from_blob(
        memory->bytes().data(), {size}, [memory](void*) {}, at::TensorOptions().dtype(at::kByte));
  });
  const bool is_there = memory && tensor.storage().data() == memory->bytes().data();
  if (is_there) offer.memory = memory->name();
  return tensor;
}

// Maps the data that another worker of this machine has inflated. Returns null if no worker offers the data, or if the shared
// memory no longer exists.
std::shared_ptr<MappedFile> find_shared_inflated(const fs::path& path, const InflatedFiles& shared) {
  const std::string memory = shared.find ? shared.find(path.filename().string()) : "";
  Descriptor opened = memory.empty() ? Descriptor() : open_shared_memory(memory);
  return opened.get() < 0 ? nullptr : std::make_shared<MappedFile>(std::move(opened), path);
}

}  // namespace

std::vector<std::int64_t> read_idx_dimensions(const fs::path& dir, const std::string& name, IdxKind kind) {
  const fs::path path = choose_file(dir, name);
  const MappedFile file(open_idx(path), path);
  if (!is_gzip(file)) return plain_header(file, kind, path).dims;
  Gunzip gunzip(idx_bytes(file), path);
  return inflate_header(gunzip, kind, path).dims;
}

IdxFile read_idx_file(const fs::path& dir, const std::string& name, IdxKind kind, const InflatedFiles& shared) {
  const fs::path path = choose_file(dir, name);
  const auto file = std::make_shared<MappedFile>(open_idx(path), path);
  if (!is_gzip(*file)) return {path, map_plain(file, kind, path)};
  if (shared.offer) return {path, inflate_shared(*file, kind, path, shared)};
  if (const auto inflated = find_shared_inflated(path, shared)) return {path, map_plain(inflated, kind, path)};
  return {path, inflate_gzip(*file, kind, path, own_memory)};
}

}  // namespace ddprun::trainer
