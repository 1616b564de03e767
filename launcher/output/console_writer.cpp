// See console_writer.hpp.
#include "launcher/output/console_writer.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <sys/ioctl.h>
#include <sys/stat.h>

#include <optional>
#include <utility>
#include <vector>

#include "common/system/file_queue.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";
constexpr int kPatienceMs = 2000;

bool same_file(int a, int b) {
  struct stat left {
  }, right{};
  return ::fstat(a, &left) == 0 && ::fstat(b, &right) == 0 && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

enum class Whose { kWorkers, kOurs };

}  // namespace

// One output stream. A regular file is written through its own queue, since its file system may stall. A device without
// readiness events (/dev/null) is written directly. Pipes, sockets and terminals are written when poll reports them as
// writable.
class ConsoleWriter::Sink : public std::enable_shared_from_this<ConsoleWriter::Sink> {
 public:
  Sink(boost::asio::io_context& io, int fd) : descriptor_(io) {
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

  ~Sink() {
    files_.reset();  // returns after all queued text is written
    if (direct_is_ours_) ::close(direct_fd_);
  }

  bool terminal() const { return terminal_; }
  int fd() const { return direct_fd_ >= 0 ? direct_fd_ : waiting_fd_; }
  std::uint64_t dropped() const { return dropped_total_; }
  FileQueue* files() { return files_ ? &*files_ : nullptr; }
  bool idle() const { return pending() == 0; }

  void append(std::string_view text, Whose whose) {
    if (state_ == State::kClosed || text.empty()) return;
    std::string head;
    if (bar_shown_) {
      head = kEraseLine;
      bar_shown_ = false;
    }
    if (open_source_ != kNobody) head += '\n';
    if (!room_for(head.size() + text.size(), whose)) {
      const auto count = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
      dropped_ += count;
      dropped_total_ += count;
      return;
    }
    open_source_ = kNobody;
    push(head, text);
  }

  bool part(int source, std::string_view anew, std::string_view more, bool ends) {
    if (state_ == State::kClosed) return true;  // drops the text silently
    const bool continues = open_source_ == source;
    std::string head;
    if (bar_shown_) head = kEraseLine;
    if (!continues && open_source_ != kNobody) head += '\n';
    const std::string_view text = continues ? more : anew;
    if (!room_for(head.size() + text.size(), Whose::kWorkers)) {
      ++dropped_;
      ++dropped_total_;
      return false;
    }
    bar_shown_ = false;
    open_source_ = ends ? kNobody : source;
    push(head, text);
    return true;
  }

  void set_bar(std::string_view text) {
    if (state_ != State::kWaiting || !terminal_ || !idle() || open_source_ != kNobody || (text.empty() && !bar_shown_)) return;
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
  // errno of a failed write, or 0. EPIPE, and EIO from a terminal, mean that the reader has closed its end. That is not counted
  // as a loss.
  int lost_to() const { return *lost_to_ == EPIPE || *lost_to_ == EIO ? 0 : *lost_to_; }

  void when_at_most(std::size_t bytes, std::function<void()> act) {
    if (waiting_bytes() <= bytes) return act();
    waiters_.push_back({bytes, std::move(act)});
  }
  void forget_waiters() { waiters_.clear(); }
  void when_reader_leaves(std::function<void()> act) { reader_left_ = std::move(act); }

 private:
  enum class State { kClosed, kDirect, kWaiting };
  static constexpr int kNobody = -1;

  // Writes to a duplicate of the descriptor. If the process is out of descriptors, it writes to `fd` itself, so that the text
  // is not lost.
  void write_directly_to(int fd) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 3);
    direct_is_ours_ = copy >= 0;
    direct_fd_ = direct_is_ours_ ? copy : fd;
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
  // Whether `bytes` more may be queued. A lossless stream always accepts worker lines, since their producer then waits until
  // the queue is short again. The agent's own lines never wait, so a full queue drops them.
  bool room_for(std::size_t bytes, Whose whose) const {
    if (queued() == 0 || (whose == Whose::kWorkers && lossless_)) return true;
    const std::size_t limit = whose == Whose::kWorkers ? kQueueBytes : (lossless_ ? 8 : 2) * kQueueBytes;
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
      act();  // may append further callbacks
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
      write_directly(direct_fd_, buffer_, *lost_to_);
      buffer_.clear();
      written_ = 0;
    } else if (!waiting_) {
      write_some();
      wait();
    }
  }

  // A full disk loses the text and has no other effect.
  static void write_directly(int fd, std::string_view text, int& lost_to) {
    if (const int error = write_all(fd, text); error != 0) lost_to = error;
  }

  void write_behind() {
    const std::size_t bytes = buffer_.size();
    *on_the_way_ += bytes;
    files_->add([fd = direct_fd_, text = std::exchange(buffer_, {}), lost = lost_to_] { write_directly(fd, text, *lost); },
                [weak = weak_from_this(), waiting = on_the_way_, bytes] {
                  *waiting -= bytes;
                  if (const auto self = weak.lock()) self->went_through();
                },
                name_);
  }

  void went_through() {
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
      if (!own_description_) {  // see the Note in console_writer.hpp
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
      *lost_to_ = errno;
      close();  // EPIPE or EIO: the reader has closed its end
      buffer_.clear();
      written_ = 0;
      if (reader_left_) reader_left_();
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
  bool direct_is_ours_ = false;
  int waiting_fd_ = -1;  // owned by descriptor_
  bool own_description_ = false;
  bool terminal_ = false;
  bool waiting_ = false;
  bool bar_shown_ = false;
  struct Waiter {
    std::size_t bytes;
    std::function<void()> act;
  };
  std::vector<Waiter> waiters_;
  std::function<void()> reader_left_;
  bool lossless_ = false;
  int open_source_ = kNobody;  // the source whose unfinished line is the last line on the console
  std::string buffer_;
  std::size_t written_ = 0;
  std::uint64_t dropped_ = 0;  // lines dropped since the last notice
  std::uint64_t dropped_total_ = 0;
  std::shared_ptr<int> lost_to_ = std::make_shared<int>(0);  // errno of a failed write; final once all text is written
  std::optional<FileQueue> files_;                           // only for a regular file
  FileQueue::About name_;                                    // path of that file
  std::shared_ptr<std::size_t> on_the_way_ = std::make_shared<std::size_t>(0);  // bytes in that queue
};

ConsoleWriter::ConsoleWriter(boost::asio::io_context& io, int stdout_fd, int stderr_fd)
    : stdout_(std::make_shared<Sink>(io, stdout_fd)),
      stderr_(same_file(stdout_fd, stderr_fd) ? stdout_ : std::make_shared<Sink>(io, stderr_fd)) {
  if (stderr_ == stdout_) return;
  // The reader has closed stdout, as in `| head`. Under torchrun the workers would die of SIGPIPE.
  stdout_->when_reader_leaves([errors = std::weak_ptr<Sink>(stderr_)] {
    const std::string said = "ddprun: nobody reads standard output any more; the job continues without it\n";
    if (const auto sink = errors.lock()) sink->append(said, Whose::kOurs);
  });
}

ConsoleWriter::~ConsoleWriter() {
  stdout_->forget_waiters();
  stderr_->forget_waiters();
  set_bar("");
  stdout_->drain();
  if (const int error = stdout_->lost_to(); error != 0 && stderr_ != stdout_) {
    line(Stream::kStderr, std::string("ddprun: standard output could not be written to its end: ") + std::strerror(error) +
                              "; what is missing there is in the logs and the report, if there are any");
  }
  stderr_->drain();
  stdout_->close();
  stderr_->close();
}

void ConsoleWriter::set_rules(const OutputRules& rules) {
  rules_ = rules;
  for (Sink* each : {stdout_.get(), stderr_.get()}) each->set_lossless(!rules.may_drop || !each->terminal());
}

bool ConsoleWriter::shows_all(Stream stream) const {
  return sink(stream).lossless();
}

bool ConsoleWriter::is_behind(Stream stream) const {
  return sink(stream).waiting_bytes() > kQueueBytes / 2;
}

void ConsoleWriter::when_at_most(Stream stream, std::size_t bytes, std::function<void()> act) {
  sink(stream).when_at_most(bytes, std::move(act));
}

bool ConsoleWriter::is_terminal(Stream stream) const {
  return sink(stream).terminal();
}

bool ConsoleWriter::colours(Stream stream) const {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(stream) && (no_color == nullptr || *no_color == '\0');
}

winsize ConsoleWriter::size(Stream stream) const {
  winsize size{};
  if (!sink(stream).terminal() || ::ioctl(sink(stream).fd(), TIOCGWINSZ, &size) != 0) return {};
  return size;
}

int ConsoleWriter::columns() const {
  const winsize now = size(stderr_->terminal() ? Stream::kStderr : Stream::kStdout);
  return now.ws_col > 0 ? now.ws_col : 80;
}

void ConsoleWriter::lines(Stream stream, std::string_view text) {
  sink(stream).append(text, Whose::kWorkers);
}

void ConsoleWriter::line(Stream stream, std::string_view text) {
  std::string whole(text);
  whole += '\n';
  sink(stream).append(whole, Whose::kOurs);
}

void ConsoleWriter::event(std::string_view text) {
  stdout_->append(text, Whose::kOurs);
}

bool ConsoleWriter::part(Stream stream, int source, std::string_view anew, std::string_view more, bool ends) {
  return sink(stream).part(source, anew, more, ends);
}

void ConsoleWriter::set_bar(std::string_view text) {
  (stderr_->terminal() ? stderr_ : stdout_)->set_bar(text);
}

std::vector<ConsoleWriter::StreamFile> ConsoleWriter::files() const {
  std::vector<StreamFile> files;
  if (FileQueue* const queue = stdout_->files()) files.push_back({Stream::kStdout, queue});
  if (FileQueue* const queue = is_one_file() ? nullptr : stderr_->files()) files.push_back({Stream::kStderr, queue});
  return files;
}

std::uint64_t ConsoleWriter::dropped_lines() const {
  return stdout_->dropped() + (stderr_ == stdout_ ? 0 : stderr_->dropped());
}

}  // namespace ddprun
