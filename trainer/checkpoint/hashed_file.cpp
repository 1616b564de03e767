#include "trainer/checkpoint/hashed_file.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <vector>

namespace ddprun::trainer {
namespace {

// Minimum size for direct writes. Smaller files use the page cache, so that a restart reads them from memory.
constexpr std::int64_t kMinDirectBytes = 32 << 20;

[[noreturn]] void fail_to(const char* what, const std::filesystem::path& file) {
  throw std::system_error(errno, std::generic_category(), std::string("cannot ") + what + " " + file.string());
}

std::string to_hex(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};
using State = std::unique_ptr<XXH3_state_t, FreeState>;

State new_state() {
  State state(XXH3_createState());
  if (!state) throw std::bad_alloc();
  XXH3_128bits_reset(state.get());
  return state;
}

}  // namespace

struct Checksum::Hash {
  State state = new_state();
};

Checksum::Checksum() : hash_(std::make_unique<Hash>()) {}
Checksum::~Checksum() = default;

void Checksum::add(std::string_view bytes) {
  XXH3_128bits_update(hash_->state.get(), bytes.data(), bytes.size());
}

std::string Checksum::xxh3_128() const {
  return to_hex(XXH3_128bits_digest(hash_->state.get()));
}

std::string xxh3_128_of(std::string_view bytes) {
  return to_hex(XXH3_128bits(bytes.data(), bytes.size()));
}

FileFacts facts_of_file(const std::filesystem::path& file) {
  const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (opened.get() < 0) fail_to("open", file);
  ::posix_fadvise(opened.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  Checksum checksum;
  std::vector<char> buffer(1 << 20);
  FileFacts facts;
  for (;;) {
    const ssize_t got = ::read(opened.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to("read", file);
    if (got == 0) break;
    checksum.add({buffer.data(), static_cast<std::size_t>(got)});
    facts.bytes += got;
  }
  facts.xxh3_128 = checksum.xxh3_128();
  return facts;
}

HashedFileWriter::HashedFileWriter(const std::filesystem::path& file, std::int64_t expected_bytes)
    : file_(file), opened_(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
  if (opened_.get() < 0) fail_to("create", file_);
  if (expected_bytes < kMinDirectBytes || !DirectWriter::switch_on(opened_.get())) return;
  direct_ = std::make_unique<DirectWriter>(opened_.get(), file_);
  set_length(expected_bytes);
}

// Allocates the blocks of the file in one call, because a growing file accepts only one write at a time. Some file systems
// can't allocate in advance, which is not an error. Throws if the disk is full.
void HashedFileWriter::set_length(std::int64_t bytes) {
  if (::fallocate(opened_.get(), 0, 0, bytes) == 0) {
    length_ = bytes;
  } else if (errno == ENOSPC || errno == EDQUOT) {
    fail_to("write", file_);
  }
}

// Writes in pieces of 1 MiB. The computation of the checksum leaves such a piece in the processor's cache, so the following
// copy of the piece is fast. The kernel accepts at most 2 GiB per call.
void HashedFileWriter::write(std::string_view bytes) {
  constexpr std::size_t kPiece = 1 << 20;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kPiece))) {
    const std::string_view piece = bytes.substr(0, kPiece);
    checksum_.add(piece);
    if (direct_) {
      direct_->write(piece);
    } else {
      write_through_cache(piece);
    }
    bytes_ += static_cast<std::int64_t>(piece.size());
    if (!direct_) begin_writeback();
  }
}

void HashedFileWriter::write_through_cache(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(opened_.get(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_to("write", file_);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

// Starts the write to the disk while the caller prepares the next bytes, so that the final sync has less to write. The call is
// only a hint, so its errors are ignored. finish() reports errors.
void HashedFileWriter::begin_writeback() {
  constexpr std::int64_t kWritebackBytes = 16 << 20;
  if (bytes_ - writeback_end_ < kWritebackBytes) return;
  ::sync_file_range(opened_.get(), writeback_end_, bytes_ - writeback_end_, SYNC_FILE_RANGE_WRITE);
  writeback_end_ = bytes_;
}

FileFacts HashedFileWriter::finish() {
  if (direct_) direct_->finish();
  if (length_ > bytes_ && ::ftruncate(opened_.get(), bytes_) != 0) fail_to("truncate", file_);
  if (::fsync(opened_.get()) != 0) fail_to("sync", file_);
  if (::close(opened_.release()) != 0) fail_to("close", file_);
  return {.bytes = bytes_, .xxh3_128 = checksum_.xxh3_128()};
}

}  // namespace ddprun::trainer
