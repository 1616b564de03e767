// Implementation of log_readers.hpp.
#include "launcher/asked/log_readers.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

using boost::system::error_code;
using nlohmann::json;

// The bytes of logs that fit in an answer: base64 needs four bytes for three, and names and places need the rest.
std::size_t bytes_that_fit(std::size_t answer_bytes, std::size_t files) {
  const std::size_t around = 256 + 96 * (files + 2);
  return answer_bytes > around + 64 ? (answer_bytes - around) / 4 * 3 : 48;
}

}  // namespace

struct LogReaders::Reader {
  Reader(boost::asio::io_context& io, const rendezvous::NodeQuestion& asked)
      : question(asked), slot(io), end(io), changes(io) {}
  rendezvous::NodeQuestion question;
  LogWish wish;
  boost::asio::steady_timer slot;  // expires when this node may send again
  boost::asio::steady_timer end;
  boost::asio::posix::stream_descriptor changes;  // an inotify descriptor, if the query follows
  // Shared with the queue's thread, which adds watches to the same inotify instance and may outlive the reader.
  std::shared_ptr<Descriptor> inotify;
};

LogReaders::LogReaders(boost::asio::io_context& io, FileQueue& files, std::filesystem::path logs, Hooks hooks)
    : io_(io), files_(files), logs_(std::move(logs)), hooks_(std::move(hooks)) {}

LogReaders::~LogReaders() = default;

void LogReaders::hear(const rendezvous::NodeQuestion& question, const json& asked) {
  std::optional<LogWish> wish = wish_of(asked);
  if (!wish) return hooks_.answer(question, {{"error", "a question about logs that it does not understand"}});
  if (readers_.size() >= kMostReaders)
    return hooks_.answer(question, {{"error", "too many people read its logs at the moment; ask again"}});
  const auto files = static_cast<std::size_t>(hooks_.own().count) * 2;
  if (!wish->rank && files > kMostBegunFiles) {
    return hooks_.answer(question, {{"error", "it has too many workers to show the logs of all: name one with --rank"}});
  }
  const std::uint64_t number = next_number_++;
  Reader& reader = *(readers_[number] = std::make_unique<Reader>(io_, question));
  reader.wish = *std::move(wish);
  const std::size_t most = std::min(question.most_bytes, kMostBytes);
  reader.wish.most_bytes = bytes_that_fit(most, std::max(files, reader.wish.begun.size()));
  if (reader.wish.follows) {
    reader.inotify = std::make_shared<Descriptor>(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (const int copy = ::fcntl(reader.inotify->get(), F_DUPFD_CLOEXEC, 0); copy >= 0) reader.changes.assign(copy);
  }
  // The time limit also applies if the file system does not answer. The answer then has no lines.
  reader.end.expires_after(kLongestWait);
  reader.end.async_wait([this, number](const error_code& error) {
    if (!error && readers_.contains(number)) answer(number, {.begun = readers_.at(number)->wish.begun, .pieces = {}});
  });
  look(number);
}

// Reads the files when this reader may send.
void LogReaders::look(std::uint64_t number) {
  const auto now = std::chrono::steady_clock::now();
  const auto turn = std::max(now, not_before_);
  not_before_ = turn + kBetween;
  Reader& reader = *readers_.at(number);
  reader.slot.expires_at(turn);
  reader.slot.async_wait([this, number](const error_code& error) {
    if (!error && readers_.contains(number)) read(number);
  });
}

void LogReaders::read(std::uint64_t number) {
  const Reader& reader = *readers_.at(number);
  const auto bytes = std::make_shared<LogBytes>();
  files_.add([bytes, logs = logs_, own = hooks_.own(), wish = reader.wish,
              inotify = reader.inotify] { *bytes = read_logs(logs, own, wish, inotify ? inotify->get() : -1); },
             [this, bytes, number, alive = std::weak_ptr(alive_)] {
               if (!alive.expired()) judge(number, *bytes);
             });
}

void LogReaders::judge(std::uint64_t number, const LogBytes& bytes) {
  const auto found = readers_.find(number);
  if (found == readers_.end()) return;  // the query timed out before the files were read
  Reader& reader = *found->second;
  if (!bytes.pieces.empty() || bytes.more || !reader.wish.follows) return answer(number, bytes);
  reader.wish.begun = bytes.begun;
  reader.wish.tail.reset();  // later lines are sent as they are written
  // If the system has no inotify instance left, the query ends by timeout, and the next query reads again.
  if (!reader.changes.is_open()) return;
  reader.changes.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this, number](const error_code& error) {
    if (error || !readers_.contains(number)) return;
    char events[4096];
    while (::read(readers_.at(number)->changes.native_handle(), events, sizeof events) > 0) {
    }
    look(number);
  });
}

void LogReaders::answer(std::uint64_t number, const LogBytes& bytes) {
  const std::unique_ptr<Reader> reader = std::move(readers_.extract(number).mapped());
  hooks_.answer(reader->question, {{"begun", begun_to_json(bytes.begun)},
                                   {"lines", pieces_to_json(bytes.pieces)},
                                   {"more", bytes.more},
                                   {"round", hooks_.round()}});
}

}  // namespace ddprun
