// One output stream of the console (console_writer.hpp). Only console_writer.cpp includes this file.
//
// No write may block the agent, but only some kinds of descriptors can be non-blocking. So the constructor chooses one of three
// ways to write:
// - Pipes, sockets and terminals: text waits in buffer_ until poll() reports the descriptor as writable.
// - Regular files: poll() always reports them as writable, although their file system may stall. A FileQueue writes them on a
//   separate thread.
// - Other devices, such as /dev/null: they have no readiness events, so text is written directly.
//
// The queue has a limit. If it is full, whole lines are dropped, and their number is written when the queue is empty again. A
// lossless stream never drops worker lines: while its queue is long, the agent stops reading from the workers instead.
//
// Lines of different workers must not mix. If the last line on the console is unfinished, open_source_ is the stream that wrote
// it. Text of any other stream then starts on a new line.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include "common/system/file_queue.hpp"
#include "common/system/write_all.hpp"
#include "launcher/output/console_writer.hpp"

namespace ddprun {

// Returns true if both descriptors refer to the same file, pipe or terminal.
inline bool same_file(int a, int b) {
  struct stat left {
  }, right{};
  return ::fstat(a, &left) == 0 && ::fstat(b, &right) == 0 && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

class ConsoleSink : public std::enable_shared_from_this<ConsoleSink> {
 public:
  // The author of a text. Worker output may fill only a part of the queue, so that space remains for ddprun's own lines.
  enum class Origin { kWorkers, kOurs };
  static constexpr std::size_t kQueueBytes = ConsoleWriter::kQueueBytes;

  ConsoleSink(boost::asio::io_context& io, int fd) : descriptor_(io) {
    struct stat info {};
    if (::fstat(fd, &info) != 0) return;  // the descriptor was closed before this process started
    terminal_ = S_ISCHR(info.st_mode) && ::isatty(fd) == 1;
    if (!terminal_ && !S_ISFIFO(info.st_mode) && !S_ISSOCK(info.st_mode)) {
      write_directly_to(fd);
      if (!S_ISREG(info.st_mode)) return;
      files_.emplace([&io](FileQueue::Work then) { boost::asio::post(io, std::move(then)); });
      std::error_code error;
      name_ = std::make_shared<std::filesystem::path>(
          std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(direct_fd_), error));
      return;
    }
    if (!S_ISSOCK(info.st_mode)) {
      own_description_ = true;
      const std::string path = "/proc/self/fd/" + std::to_string(fd);
      const int own = ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
      if (own >= 0 && same_file(own, fd)) {
        attach(own);
        return;
      }
      if (own >= 0) ::close(own);
      own_description_ = false;
    }
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy >= 0) attach(copy);
    if (state_ == State::kClosed) write_directly_to(fd);
  }

  ~ConsoleSink() {
    files_.reset();  // the destructor of the queue returns after all queued text is written
    if (owns_direct_fd_) ::close(direct_fd_);
  }

  bool terminal() const { return terminal_; }
  int fd() const { return direct_fd_ >= 0 ? direct_fd_ : waiting_fd_; }
  std::uint64_t dropped() const { return dropped_total_; }
  FileQueue* files() { return files_ ? &*files_ : nullptr; }
  bool idle() const { return pending() == 0; }

  void append(std::string_view text, Origin origin) {
    if (state_ == State::kClosed || text.empty()) return;
    std::string head;
    if (bar_shown_) {
      head = kEraseLine;
      bar_shown_ = false;
    }
    if (open_source_ != kNoSource) head += '\n';
    if (!has_space_for(head.size() + text.size(), origin)) {
      const auto count = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
      dropped_ += count;
      dropped_total_ += count;
      return;
    }
    open_source_ = kNoSource;
    push(head, text);
  }

  bool part(int source, std::string_view full_text, std::string_view more, bool ends) {
    if (state_ == State::kClosed) return true;  // no reader is left, so the text is dropped without counting it
    const bool continues = open_source_ == source;
    std::string head;
    if (bar_shown_) head = kEraseLine;
    if (!continues && open_source_ != kNoSource) head += '\n';
    const std::string_view text = continues ? more : full_text;
    if (!has_space_for(head.size() + text.size(), Origin::kWorkers)) {
      ++dropped_;
      ++dropped_total_;
      return false;
    }
    bar_shown_ = false;
    open_source_ = ends ? kNoSource : source;
    push(head, text);
    return true;
  }

  void set_bar(std::string_view text) {
    if (state_ != State::kWaiting || !terminal_ || !idle() || open_source_ != kNoSource || (text.empty() && !bar_shown_))
      return;
    bar_shown_ = !text.empty();
    push(kEraseLine, text);
  }

  void drain() {
    if (files_) files_->finish();
    while (state_ == State::kWaiting && pending() > 0) {
      pollfd ready{waiting_fd_, POLLOUT, 0};
      const int count = ::poll(&ready, 1, kPatienceMs);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return;
      write_some();
    }
  }

  void close() {
    boost::system::error_code ignored;
    descriptor_.close(ignored);
    state_ = State::kClosed;
  }

  std::size_t waiting_bytes() const { return state_ == State::kClosed ? 0 : queued(); }
  void set_lossless(bool lossless) { lossless_ = lossless; }
  bool lossless() const { return lossless_; }
  // Returns the errno of a failed write, or 0. If the error is EPIPE, or EIO from a terminal, the reader has only closed its
  // end, so the result is 0 too.
  int write_error() const { return *write_error_ == EPIPE || *write_error_ == EIO ? 0 : *write_error_; }

  void when_at_most(std::size_t bytes, std::function<void()> act) {
    if (waiting_bytes() <= bytes) return act();
    waiters_.push_back({bytes, std::move(act)});
  }
  void forget_waiters() { waiters_.clear(); }
  void when_reader_gone(std::function<void()> act) { on_reader_gone_ = std::move(act); }

 private:
  enum class State { kClosed, kDirect, kWaiting };
  static constexpr int kNoSource = -1;
  static constexpr std::string_view kEraseLine = "\r\x1b[K";
  static constexpr int kPatienceMs = 2000;

  // Writes to a duplicate of the descriptor. If the process has no free descriptor, it writes to `fd` itself, so that no text
  // is lost.
  void write_directly_to(int fd) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    owns_direct_fd_ = copy >= 0;
    direct_fd_ = owns_direct_fd_ ? copy : fd;
    state_ = State::kDirect;
  }

  void attach(int fd) {
    boost::system::error_code error;
    descriptor_.assign(fd, error);
    if (error) {
      ::close(fd);
      return;
    }
    waiting_fd_ = fd;
    state_ = State::kWaiting;
  }

  std::size_t pending() const { return buffer_.size() - written_; }
  std::size_t queued() const { return pending() + *on_the_way_; }
  // Returns true if a text of this many bytes may be queued. A lossless stream always accepts worker lines, because the agent
  // stops reading from the workers while the queue is long. ddprun's own lines cannot wait, so they are dropped if the queue
  // is full.
  bool has_space_for(std::size_t bytes, Origin origin) const {
    if (queued() == 0 || (origin == Origin::kWorkers && lossless_)) return true;
    const std::size_t limit = origin == Origin::kWorkers ? kQueueBytes : (lossless_ ? 8 : 2) * kQueueBytes;
    return queued() + bytes <= limit;
  }

  void call_waiters() {
    for (std::size_t i = 0; i < waiters_.size();) {
      if (waiting_bytes() > waiters_[i].bytes) {
        ++i;
        continue;
      }
      const std::function<void()> act = std::move(waiters_[i].act);
      waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
      act();  // `act` may add callbacks to waiters_
    }
  }

  void push(std::string_view head, std::string_view text) {
    if (written_ > 0 && (written_ == buffer_.size() || written_ >= kQueueBytes / 2)) {
      buffer_.erase(0, written_);
      written_ = 0;
    }
    buffer_.append(head).append(text);
    if (files_) {
      write_behind();
    } else if (state_ == State::kDirect) {
      write_directly(direct_fd_, buffer_, *write_error_);
      buffer_.clear();
      written_ = 0;
    } else if (!waiting_) {
      write_some();
      wait();
    }
  }

  // If the disk is full, the text is lost and write_error is set. The job continues.
  static void write_directly(int fd, std::string_view text, int& write_error) {
    if (const int error = write_all(fd, text); error != 0) write_error = error;
  }

  void write_behind() {
    const std::size_t bytes = buffer_.size();
    *on_the_way_ += bytes;
    files_->add([fd = direct_fd_, text = std::exchange(buffer_, {}), lost = write_error_] { write_directly(fd, text, *lost); },
                [weak = weak_from_this(), waiting = on_the_way_, bytes] {
                  *waiting -= bytes;
                  if (const auto self = weak.lock()) self->on_written();
                },
                name_);
  }

  void on_written() {
    if (queued() == 0 && dropped_ > 0) push("", notice_of_dropped());
    call_waiters();
  }

  std::string notice_of_dropped() {
    const std::uint64_t count = std::exchange(dropped_, 0);
    return "ddprun: " + std::to_string(count) + (count == 1 ? " line was" : " lines were") +
           " not shown here: the console is slower than the output\n";
  }

  void write_some() {
    while (state_ == State::kWaiting && pending() > 0) {
      std::size_t bytes = pending();
      if (!own_description_) {  // a large write could block; see the Note in console_writer.hpp
        pollfd ready{waiting_fd_, POLLOUT, 0};
        if (::poll(&ready, 1, 0) <= 0) return;
        bytes = std::min<std::size_t>(bytes, terminal_ ? 256 : 4096);
      }
      const ssize_t count = ::write(waiting_fd_, buffer_.data() + written_, bytes);
      if (count > 0) {
        written_ += static_cast<std::size_t>(count);
        continue;
      }
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      *write_error_ = errno;
      close();  // EPIPE or EIO: the reader has closed its end
      buffer_.clear();
      written_ = 0;
      if (on_reader_gone_) on_reader_gone_();
      return;
    }
    if (pending() > 0 || state_ != State::kWaiting) return;
    buffer_.clear();
    written_ = 0;
    if (dropped_ > 0) {
      buffer_ = notice_of_dropped();
      write_some();
    }
  }

  void wait() {
    if (waiting_ || state_ != State::kWaiting || pending() == 0) return;
    waiting_ = true;
    descriptor_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                           [weak = weak_from_this()](const boost::system::error_code& error) {
                             const auto self = weak.lock();
                             if (!self || error) return;
                             self->waiting_ = false;
                             self->write_some();
                             self->wait();
                             self->call_waiters();
                           });
  }

  boost::asio::posix::stream_descriptor descriptor_;
  State state_ = State::kClosed;
  int direct_fd_ = -1;
  bool owns_direct_fd_ = false;
  int waiting_fd_ = -1;  // the descriptor that descriptor_ owns
  bool own_description_ = false;
  bool terminal_ = false;
  bool waiting_ = false;
  bool bar_shown_ = false;
  struct Waiter {
    std::size_t bytes;
    std::function<void()> act;
  };
  std::vector<Waiter> waiters_;
  std::function<void()> on_reader_gone_;
  bool lossless_ = false;
  int open_source_ = kNoSource;  // the worker stream whose unfinished line is last on the console
  std::string buffer_;
  std::size_t written_ = 0;
  std::uint64_t dropped_ = 0;  // lines dropped since the last message about dropped lines
  std::uint64_t dropped_total_ = 0;
  // Errno of the last failed write, or 0; final after all text was written.
  std::shared_ptr<int> write_error_ = std::make_shared<int>(0);
  std::optional<FileQueue> files_;  // set if the descriptor is a regular file
  FileQueue::About name_;           // path of this regular file, for messages
  // Number of bytes that were passed to `files_` and are not written yet.
  std::shared_ptr<std::size_t> on_the_way_ = std::make_shared<std::size_t>(0);
};

}  // namespace ddprun
