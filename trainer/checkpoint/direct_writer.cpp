// Implementation of direct_writer.hpp.
//
// Note: the end of the file. A direct write must start and end at a block boundary of the disk. So the last bytes of the file,
// if they do not fill a block, are written through the page cache after all other bytes. The caller's fsync writes them to the
// disk.
#include "trainer/checkpoint/direct_writer.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

namespace ddprun::trainer {
namespace {

// This size is enough for the disk's full speed, and a few of these buffers fit into a processor's last-level cache.
constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr std::size_t kBlock = 4096;  // the largest block size that a disk requires for direct writes

bool set_direct(int fd, bool on) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ((flags & O_DIRECT) != 0) == on) return false;
  return ::fcntl(fd, F_SETFL, flags ^ O_DIRECT) == 0;
}

// Some file systems accept O_DIRECT in open() but refuse direct writes. The bytes are then written through the page cache.
// Several threads may detect the refusal at the same time.
void write_at(int fd, const std::filesystem::path& file, std::string_view bytes, std::int64_t offset) {
  bool refused = false;
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), offset);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0 && errno == EINVAL && !std::exchange(refused, true)) {
      set_direct(fd, false);
      continue;
    }
    if (put < 0) throw std::system_error(errno, std::generic_category(), "cannot write " + file.string());
    bytes.remove_prefix(static_cast<std::size_t>(put));
    offset += put;
  }
}

}  // namespace

void DirectWriter::Unmap::operator()(char* memory) const {
  ::munmap(memory, kBufferBytes);
}

DirectWriter::Buffer DirectWriter::new_buffer() {
  void* const mapped = ::mmap(nullptr, kBufferBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  ::madvise(mapped, kBufferBytes, MADV_HUGEPAGE);
  return Buffer(static_cast<char*>(mapped));
}

DirectWriter::DirectWriter(int fd, std::filesystem::path file) : fd_(fd), file_(std::move(file)) {}

DirectWriter::~DirectWriter() = default;

bool DirectWriter::switch_on(int fd) {
  return set_direct(fd, true);
}

void DirectWriter::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t count = std::min(bytes.size(), kBufferBytes - filled_);
    std::memcpy(parts_[filling_].buffer.get() + filled_, bytes.data(), count);
    filled_ += count;
    bytes.remove_prefix(count);
    if (filled_ == kBufferBytes) hand_over();
  }
}

// Starts the write of the full buffer in the buffer's own thread. Then waits until the next buffer is written, so that it can
// be filled again.
void DirectWriter::hand_over() {
  Part& full = parts_[filling_];
  full.disk.start([fd = fd_, file = file_, bytes = std::string_view(full.buffer.get(), filled_), offset = offset_] {
    write_at(fd, file, bytes, offset);
  });
  offset_ += static_cast<std::int64_t>(filled_);
  filling_ = (filling_ + 1) % parts_.size();
  filled_ = 0;
  wait_for(parts_[filling_]);
}

void DirectWriter::wait_for(Part& part) {
  part.disk.wait();
  if (const auto ended = part.disk.take_finished(); ended && *ended) std::rethrow_exception(*ended);
}

void DirectWriter::finish() {
  for (Part& part : parts_) wait_for(part);
  const std::string_view rest(parts_[filling_].buffer.get(), filled_);
  const std::size_t blocks = rest.size() / kBlock * kBlock;
  write_at(fd_, file_, rest.substr(0, blocks), offset_);
  set_direct(fd_, false);
  write_at(fd_, file_, rest.substr(blocks), offset_ + static_cast<std::int64_t>(blocks));
  filled_ = 0;
}

}  // namespace ddprun::trainer
