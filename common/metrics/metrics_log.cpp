#include "common/metrics/metrics_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/shared_folder/others_link.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using NewestSteps = std::map<std::string, std::int64_t, std::less<>>;

void note(NewestSteps& newest, const std::string& event, std::int64_t step) {
  const auto [found, added] = newest.emplace(event, step);
  if (!added) found->second = std::max(found->second, step);
}

// Returns true if the line is a complete record whose step is not after `resume_step`. After a power failure, a file can
// contain a line of zero bytes, which is not a record.
bool is_kept(std::string_view line, std::int64_t resume_step, NewestSteps& newest) {
  const auto record = nlohmann::json::parse(line, nullptr, false);
  if (!record.is_object()) return false;
  const auto step = record.find("step");
  if (step == record.end() || !step->is_number_integer()) return true;
  if (step->get<std::int64_t>() > resume_step) return false;
  if (const auto event = record.find("event"); event != record.end() && event->is_string()) {
    note(newest, event->get<std::string>(), step->get<std::int64_t>());
  }
  return true;
}

struct Kept {
  std::string text;       // the kept lines
  bool is_prefix = true;  // true if all removed lines are at the end of the file
};

Kept kept_part(const std::string& text, std::int64_t resume_step, NewestSteps& newest) {
  Kept kept;
  bool dropped = false;
  std::size_t begin = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line(text.data() + begin, end - begin);
    if (!is_kept(line, resume_step, newest)) {
      dropped = true;
      continue;
    }
    if (dropped) kept.is_prefix = false;
    kept.text.append(line).push_back('\n');
  }
  return kept;
}

// Removes an incomplete last line, and all lines for which is_kept() returns false. Throws std::system_error with the file's
// name.
void cut_metrics_file(const fs::path& file, std::int64_t resume_step, NewestSteps& newest) {
  if (!fs::is_regular_file(file) || is_others_link(file)) return;
  std::string text;
  {
    std::ifstream in(file, std::ios::binary);
    std::ostringstream content;
    if (!in) throw std::system_error(errno, std::generic_category(), "cannot read " + file.string());
    content << in.rdbuf();
    text = std::move(content).str();
  }
  const Kept kept = kept_part(text, resume_step, newest);
  if (kept.text.size() == text.size()) return;
  if (!kept.is_prefix) {
    write_file_atomically(file, kept.text);
    return;
  }
  // truncate(2) is used because it is atomic, and works on a full disk.
  if (::truncate(file.c_str(), static_cast<off_t>(kept.text.size())) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot truncate " + file.string());
  }
}

}  // namespace

MetricsLog::MetricsLog(const fs::path& file, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble)
    : file_(file), resume_step_(resume_step), on_trouble_(std::move(on_trouble)) {
  open();
}

// Opens the file. The first successful open removes the lines after the resume step. Later opens must not remove these lines,
// because they were written by this process.
void MetricsLog::open() {
  if (!cut_) {
    try {
      if (!file_.parent_path().empty()) fs::create_directories(file_.parent_path());
      cut_metrics_file(file_, resume_step_, newest_);
    } catch (const std::system_error& error) {
      trouble(std::string(error.what()) + "; metrics after step " + std::to_string(resume_step_) + " may appear twice");
    }
  }
  // O_NONBLOCK is necessary, because the path may be a pipe. Without this flag, open(2) would block until a reader opens the
  // pipe.
  opened_ = Descriptor(open_unless_others_link(file_, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
  cut_ = cut_ || opened_.get() >= 0;
  if (opened_.get() < 0) {
    trouble("cannot open " + file_.string() + ": " + std::strerror(errno) +
            "; records are kept in memory, and ddprun tries again to open the file");
  }
}

std::int64_t MetricsLog::newest(const std::string& event) const {
  const auto found = newest_.find(event);
  return found == newest_.end() ? -1 : found->second;
}

void MetricsLog::write(const std::string& event, const nlohmann::ordered_json& fields) {
  constexpr std::size_t kMaxKeptBytes = 1 << 20;
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  nlohmann::ordered_json record = {{"event", event},
                                   {"time_ns", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()}};
  record.update(fields);
  std::string line = record.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  if (opened_.get() < 0) open();
  const auto step = record.find("step");
  const bool has_step = step != record.end() && step->is_number_integer();
  if (opened_.get() < 0) {
    if (kept_.size() + line.size() <= kMaxKeptBytes) {
      kept_ += line;
      if (has_step) note(newest_, event, step->get<std::int64_t>());
    }
    return;
  }
  if (has_step) note(newest_, event, step->get<std::int64_t>());
  put(std::exchange(kept_, {}) + line);
}

void MetricsLog::put(const std::string& lines) {
  ssize_t put = 0;
  do {
    put = ::write(opened_.get(), lines.data(), lines.size());
  } while (put < 0 && errno == EINTR);
  if (put == static_cast<ssize_t>(lines.size())) return;
  // After a short write, the disk is full and the line is incomplete.
  const int reason = put < 0 ? errno : ENOSPC;
  if (put > 0) remove_torn_line(put);
  trouble("cannot write " + file_.string() + ": " + std::strerror(reason) + "; some metrics will be missing");
  if (reason != ESTALE) return;
  opened_ = Descriptor();  // ESTALE: the file server has lost this file; the next write() opens the path again
  kept_ = lines;
}

// Removes the last `bytes` bytes of the file, which are an incomplete line. If they remained, the next line would be appended
// to them.
void MetricsLog::remove_torn_line(std::int64_t bytes) {
  const off_t size = ::lseek(opened_.get(), 0, SEEK_END);
  if (size < bytes || ::ftruncate(opened_.get(), size - bytes) != 0) {
    trouble("cannot remove an incomplete line from " + file_.string() + ": " + std::strerror(errno));
  }
}

void MetricsLog::trouble(const std::string& what) {
  if (!std::exchange(troubled_, true) && on_trouble_) on_trouble_(what);
}

}  // namespace ddprun
