// Implementation of log_tailer.hpp. A query passes through three functions. poll() waits until this node may send. read()
// reads the files on the queue's thread. evaluate() answers or waits for new bytes.
#include "launcher/query/cluster/log_tailer.hpp"

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

// Returns the number of log bytes per file that fit in an answer. Base64 turns three bytes into four, and names and positions
// need `overhead` bytes.
std::size_t bytes_per_file(std::size_t answer_bytes, std::size_t files) {
  const std::size_t overhead = 256 + 96 * (files + 2);
  return answer_bytes > overhead + 64 ? (answer_bytes - overhead) / 4 * 3 : 48;
}

}  // namespace

struct LogTailer::Reader {
  Reader(boost::asio::io_context& io, const rendezvous::NodeQuery& query) : question(query), slot(io), end(io), changes(io) {}
  rendezvous::NodeQuery question;
  LogRequest request;
  boost::asio::steady_timer slot;  // expires when this node may send the next answer
  boost::asio::steady_timer end;
  boost::asio::posix::stream_descriptor changes;  // an inotify descriptor, if the query has "follow"
  // The queue's thread adds watches to this inotify instance and may outlive the reader, so the descriptor is shared.
  std::shared_ptr<Descriptor> inotify;
};

LogTailer::LogTailer(boost::asio::io_context& io, FileQueue& files, std::filesystem::path logs, const Node& node, Answer answer)
    : io_(io), files_(files), logs_(std::move(logs)), node_(node), answer_(std::move(answer)) {}

LogTailer::~LogTailer() = default;

void LogTailer::receive(const rendezvous::NodeQuery& question, const json& query) {
  std::optional<LogRequest> request = parse_log_request(query);
  if (!request)
    return answer_(question,
                   {{"error", "the node does not support this log query: install the same version of ddprun on all nodes"}});
  if (readers_.size() >= kMaxReaders)
    return answer_(question, {{"error", "too many users are reading the logs of the node; try again"}});
  const auto files = static_cast<std::size_t>(node_.local_ranks().count) * 2;
  if (!request->rank && files > kMaxCursorFiles) {
    return answer_(question,
                   {{"error", "the node has too many workers to show all of their logs: select one worker with --rank"}});
  }
  const std::uint64_t number = next_number_++;
  Reader& reader = *(readers_[number] = std::make_unique<Reader>(io_, question));
  reader.request = *std::move(request);
  const std::size_t most = std::min(question.max_bytes, kMaxBytes);
  reader.request.max_bytes = bytes_per_file(most, std::max(files, reader.request.cursor.size()));
  if (reader.request.follows) {
    reader.inotify = std::make_shared<Descriptor>(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (const int copy = ::fcntl(reader.inotify->get(), F_DUPFD_CLOEXEC, 0); copy >= 0) reader.changes.assign(copy);
  }
  // Even if the file system does not answer, the query ends after kMaxWait. Its answer then contains no lines.
  reader.end.expires_after(kMaxWait);
  reader.end.async_wait([this, number](const error_code& error) {
    if (!error && readers_.contains(number)) answer(number, {.cursor = readers_.at(number)->request.cursor, .pieces = {}});
  });
  poll(number);
}

// Reads the files as soon as this node may send another answer.
void LogTailer::poll(std::uint64_t number) {
  const auto now = std::chrono::steady_clock::now();
  const auto turn = std::max(now, not_before_);
  not_before_ = turn + kMinInterval;
  Reader& reader = *readers_.at(number);
  reader.slot.expires_at(turn);
  reader.slot.async_wait([this, number](const error_code& error) {
    if (!error && readers_.contains(number)) read(number);
  });
}

void LogTailer::read(std::uint64_t number) {
  const Reader& reader = *readers_.at(number);
  const auto bytes = std::make_shared<LogBytes>();
  files_.add([bytes, logs = logs_, local_ranks = node_.local_ranks(), request = reader.request,
              inotify = reader.inotify] { *bytes = read_logs(logs, local_ranks, request, inotify ? inotify->get() : -1); },
             [this, bytes, number, alive = std::weak_ptr(alive_)] {
               if (!alive.expired()) evaluate(number, *bytes);
             });
}

void LogTailer::evaluate(std::uint64_t number, const LogBytes& bytes) {
  const auto found = readers_.find(number);
  if (found == readers_.end()) return;  // the query timed out before the files were read
  Reader& reader = *found->second;
  if (!bytes.pieces.empty() || bytes.more || !reader.request.follows) return answer(number, bytes);
  reader.request.cursor = bytes.cursor;
  reader.request.tail.reset();  // `tail` limits only the first answer; all later lines are sent
  // If the system has no free inotify instance, changes are not observed. The query then ends after kMaxWait, and the next
  // query reads the files again.
  if (!reader.changes.is_open()) return;
  reader.changes.async_wait(boost::asio::posix::stream_descriptor::wait_read, [this, number](const error_code& error) {
    if (error || !readers_.contains(number)) return;
    char events[4096];
    while (::read(readers_.at(number)->changes.native_handle(), events, sizeof events) > 0) {
    }
    poll(number);
  });
}

void LogTailer::answer(std::uint64_t number, const LogBytes& bytes) {
  const std::unique_ptr<Reader> reader = std::move(readers_.extract(number).mapped());
  answer_(reader->question, {{"begun", cursor_to_json(bytes.cursor)},
                             {"lines", pieces_to_json(bytes.pieces)},
                             {"more", bytes.more},
                             {"round", node_.round()}});
}

}  // namespace ddprun
