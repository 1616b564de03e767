// Implementation of log_files.hpp. A request contains the reader's position in each file (the cursor). The reply contains the
// bytes after these positions and the new cursor. So the node stores nothing between requests.
#include "launcher/output/log_files.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <tuple>
#include <utility>

#include "common/system/descriptor.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMinShare = 512;

int number_at_end(const std::string& name) {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  return digits < name.size() && name.size() - digits < 9 ? std::stoi(name.substr(digits)) : -1;
}

fs::path log_file_of(const fs::path& worker, bool error) {
  return worker / log_name(error ? Stream::kStderr : Stream::kStdout);
}

// Reads the log files of one node for one request.
class LogReader {
 public:
  LogReader(const fs::path& logs, const LocalRanks& local_ranks, const LogRequest& request, int inotify)
      : local_ranks_(local_ranks), request_(request), inotify_(inotify) {
    watch_folder(inotify, logs, false);
    rounds_ = rounds_in(logs);
    if (!rounds_.empty()) watch_folder(inotify, rounds_.back().path, false);
  }

  LogBytes read() {
    answer_.cursor = request_.cursor;
    begin_new_files();
    std::ranges::sort(answer_.cursor, {}, [](const LogPosition& one) { return std::tuple(one.worker, one.error); });
    left_ = request_.max_bytes;
    const std::size_t share = request_.follows ? std::max(kMinShare, left_ / std::max<std::size_t>(1, unread())) : left_;
    for (LogPosition& place : answer_.cursor) read_on(place, std::min(share, left_));
    return std::move(answer_);
  }

 private:
  fs::path folder_of(const RoundFolder& round, int worker) const {
    return worker_folder(round.path, round.layout, worker, worker);
  }
  int rank_of(const RoundFolder& round, int worker) const {
    return round.layout == LogLayout::kRounds ? worker : local_ranks_.first + worker;
  }
  bool is_local_worker(const RoundFolder& round, int worker) const { return local_ranks_.has(rank_of(round, worker)); }
  std::vector<RoundFolder>::const_iterator round_of(const LogPosition& place) const {
    return std::ranges::find(rounds_, place.round, &RoundFolder::number);
  }
  fs::path file_of(const LogPosition& place) const {
    const auto round = round_of(place);
    return round == rounds_.end() ? fs::path() : log_file_of(folder_of(*round, place.worker), place.error);
  }

  void begin_new_files() {
    if (rounds_.empty()) return;
    const int first = rounds_.back().layout == LogLayout::kRounds ? local_ranks_.first : 0;
    for (int worker = first; worker < first + local_ranks_.count; ++worker) {
      if (request_.rank && rank_of(rounds_.back(), worker) != *request_.rank) continue;
      const auto newest = std::find_if(rounds_.rbegin(), rounds_.rend(), [&](const RoundFolder& round) {
        std::error_code error;
        return fs::is_directory(folder_of(round, worker), error);
      });
      if (newest == rounds_.rend()) continue;
      const fs::path folder = folder_of(*newest, worker);
      watch_folder(inotify_, folder, true);
      for (const bool error : {false, true}) begin_file(*newest, worker, error, folder);
    }
  }

  void begin_file(const RoundFolder& round, int worker, bool error, const fs::path& folder) {
    if (request_.only_errors && !error) return;
    const bool cursor = std::ranges::any_of(request_.cursor,
                                            [&](const LogPosition& one) { return one.worker == worker && one.error == error; });
    if (cursor) return;
    const Descriptor file(::open(log_file_of(folder, error).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) return;
    const std::int64_t at = request_.tail ? tail_offset(file.get(), *request_.tail) : 0;
    answer_.cursor.push_back({.round = round.number, .worker = worker, .error = error, .at = at});
  }

  // Returns true if the file has bytes after `place`.
  bool is_behind(const LogPosition& place) const {
    struct stat info {};
    return ::stat(file_of(place).c_str(), &info) == 0 && info.st_size > place.at;
  }
  std::size_t unread() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(answer_.cursor, [&](const LogPosition& one) { return is_behind(one); }));
  }

  // Reads at most `most` bytes from one stream of a worker. At the end of a file it continues with the file of the worker's
  // next round. Each piece increases the size of the reply, so one call adds at most two pieces.
  void read_on(LogPosition& place, std::size_t most) {
    const std::size_t before = answer_.pieces.size();
    for (auto round = round_of(place); round != rounds_.end();) {
      const std::optional<std::size_t> count = read_piece(*round, place, most);
      most -= count.value_or(0);
      if ((count && is_behind(place)) || answer_.pieces.size() > before + 1) {
        answer_.more = true;
        return;
      }
      round = std::find_if(round + 1, rounds_.cend(), [&](const RoundFolder& later) {
        std::error_code error;
        return is_local_worker(later, place.worker) && fs::is_directory(folder_of(later, place.worker), error);
      });
      if (round == rounds_.cend()) return;
      place.round = round->number;
      place.at = 0;
    }
  }

  // Reads from one file and adds a piece to the reply. Returns the number of bytes, or nullopt if the file does not exist or
  // cannot be read.
  std::optional<std::size_t> read_piece(const RoundFolder& round, LogPosition& place, std::size_t most) {
    const fs::path folder = folder_of(round, place.worker);
    watch_folder(inotify_, folder, true);
    const Descriptor file(::open(log_file_of(folder, place.error).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) return std::nullopt;
    if (most == 0) return 0;
    std::string bytes(most, '\0');
    ssize_t count = 0;
    while ((count = ::pread(file.get(), bytes.data(), bytes.size(), place.at)) < 0 && errno == EINTR) {
    }
    if (count < 0) return std::nullopt;
    if (count == 0) return 0;
    bytes.resize(static_cast<std::size_t>(count));
    place.at += count;
    left_ -= bytes.size();
    answer_.pieces.push_back({rank_of(round, place.worker), round.number, place.error, std::move(bytes)});
    return static_cast<std::size_t>(count);
  }

  LocalRanks local_ranks_;
  const LogRequest& request_;
  int inotify_;
  std::vector<RoundFolder> rounds_;
  LogBytes answer_;
  std::size_t left_ = 0;
};

}  // namespace

std::vector<RoundFolder> rounds_in(const fs::path& logs) {
  std::vector<RoundFolder> rounds;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(logs, error)) {
    const std::string name = entry.path().filename().string();
    const bool attempt = name.starts_with("attempt_");
    const int number = attempt || name.starts_with("round-") ? number_at_end(name) : -1;
    if (number >= 0) rounds.push_back({number, attempt ? LogLayout::kAttempts : LogLayout::kRounds, entry.path()});
  }
  std::ranges::sort(rounds, {}, &RoundFolder::number);
  return rounds;
}

std::map<int, fs::path> workers_in(const fs::path& round) {
  std::map<int, fs::path> workers;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(round, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_workers = name.starts_with("rank-") || std::isdigit(static_cast<unsigned char>(name[0])) != 0;
    if (const int rank = number_at_end(name); rank >= 0 && is_workers) workers[rank] = entry.path();
  }
  return workers;
}

std::map<int, fs::path> ranks_in(const RoundFolder& round, int first_rank) {
  std::map<int, fs::path> ranks;
  for (auto& [number, folder] : workers_in(round.path)) {
    ranks[number + (round.layout == LogLayout::kAttempts ? first_rank : 0)] = std::move(folder);
  }
  return ranks;
}

std::map<int, fs::path> newest_folders(const fs::path& logs, int first_rank) {
  std::map<int, fs::path> newest;
  for (const RoundFolder& round : rounds_in(logs)) {
    for (auto& [rank, folder] : ranks_in(round, first_rank)) newest[rank] = std::move(folder);
  }
  return newest;
}

off_t tail_offset(int fd, int count) {
  off_t at = ::lseek(fd, 0, SEEK_END);
  if (count == 0 || at <= 0) return at;
  char piece[4096];
  int newlines = ::pread(fd, piece, 1, at - 1) == 1 && piece[0] == '\n' ? count + 1 : count;
  while (at > 0) {
    const auto size = static_cast<std::size_t>(std::min<off_t>(at, sizeof piece));
    at -= static_cast<off_t>(size);
    if (::pread(fd, piece, size, at) != static_cast<ssize_t>(size)) return 0;
    for (std::size_t i = size; i > 0; --i) {
      if (piece[i - 1] == '\n' && --newlines == 0) return at + static_cast<off_t>(i);
    }
  }
  return 0;
}

bool watch_folder(int inotify, const fs::path& folder, bool files) {
  return inotify >= 0 && ::inotify_add_watch(inotify, folder.c_str(), IN_CREATE | IN_MOVED_TO | (files ? IN_MODIFY : 0U)) >= 0;
}

LogBytes read_logs(const fs::path& logs, const LocalRanks& local_ranks, const LogRequest& request, int inotify) {
  return LogReader(logs, local_ranks, request, inotify).read();
}

}  // namespace ddprun
