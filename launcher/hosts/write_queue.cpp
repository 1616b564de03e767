#include "launcher/hosts/write_queue.hpp"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "common/system/write_all.hpp"

namespace ddprun {

void WriteQueue::push(std::string bytes) {
  if (bytes.empty()) return;
  bytes_ += bytes.size();
  parts_.push_back(std::move(bytes));
}

bool WriteQueue::write_to(int fd, std::size_t max_bytes) {
  while (!parts_.empty() && max_bytes > 0) {
    std::string& part = parts_.front();
    const ssize_t count = ::write(fd, part.data() + offset_, std::min(part.size() - offset_, max_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    offset_ += static_cast<std::size_t>(count);
    max_bytes -= static_cast<std::size_t>(count);
    if (offset_ < part.size()) continue;
    bytes_ -= part.size();
    ::explicit_bzero(part.data(), part.size());
    parts_.pop_front();
    offset_ = 0;
  }
  return true;
}

void WriteQueue::write_blocking(int fd) {
  for (; !parts_.empty(); parts_.pop_front(), offset_ = 0) {
    if (write_all(fd, std::string_view(parts_.front()).substr(offset_)) != 0) break;
  }
  *this = WriteQueue();
}

void WriteQueue::append(WriteQueue other) {
  for (std::string& part : other.parts_) push(std::move(part));
}

std::size_t WriteQueue::drop_above(std::size_t max_bytes) {
  std::size_t dropped = 0;
  while (bytes_ > max_bytes) {
    dropped += parts_.front().size();
    bytes_ -= parts_.front().size();
    parts_.pop_front();
    offset_ = 0;
  }
  return dropped;
}

}  // namespace ddprun
