// See worker_output_files.hpp.
#include "launcher/output/worker_output_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "common/shared_folder/others_link.hpp"
#include "common/system/write_all.hpp"
#include "launcher/output/last_exception.hpp"
#include "launcher/output/last_lines.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr off_t kTailBytes = 32 << 10;

std::string numbered(const char* format, int number) {
  char text[32];
  std::snprintf(text, sizeof text, format, number);
  return text;
}

std::string bytes_of_file(int fd, off_t begin, off_t end) {
  std::string text(static_cast<std::size_t>(std::max<off_t>(0, end - begin)), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t count = ::pread(fd, text.data() + done, text.size() - done, begin + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  text.resize(done);
  return text;
}

// At most the last 32 KiB of the file. The text starts at the beginning of a line, if a line begins there. Empty if the file
// can't be read.
std::string end_of_file(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  const off_t size = ::lseek(fd, 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - kTailBytes);
  std::string text = bytes_of_file(fd, begin, size);
  ::close(fd);
  if (begin > 0) text.erase(0, text.find('\n') + 1);  // npos + 1 is 0: without a line end nothing is removed
  return text;
}

}  // namespace

fs::path round_folder(const fs::path& root, LogLayout layout, int round, int restart_count) {
  return root / (layout == LogLayout::kRounds ? numbered("round-%03d", round) : numbered("attempt_%d", restart_count));
}

fs::path worker_folder(const fs::path& round, LogLayout layout, int rank, int local_rank) {
  return round / (layout == LogLayout::kRounds ? numbered("rank-%05d", rank) : std::to_string(local_rank));
}

fs::path standby_folder(const fs::path& root, int standby) {
  return root / numbered("standby-%03d", standby);
}

const char* log_name(Stream stream) {
  return stream == Stream::kStdout ? "stdout.log" : "stderr.log";
}

int make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0) return 0;
  if (errno == EEXIST) return is_others_link(folder) ? ELOOP : 0;
  if (errno != ENOENT) return errno;
  std::error_code error;  // A parent folder is missing, which happens at most once per run.
  fs::create_directories(folder, error);
  return error.value();
}

int open_log(const fs::path& file) {
  return open_unless_others_link(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

std::int64_t line_count(const fs::path& file) {
  constexpr off_t kMost = 1 << 20;
  const int fd = file.empty() ? -1 : ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return 0;
  const off_t size = ::lseek(fd, 0, SEEK_END);
  const std::string text = size > 0 && size <= kMost ? bytes_of_file(fd, 0, size) : std::string();
  ::close(fd);
  return std::count(text.begin(), text.end(), '\n') + (!text.empty() && text.back() != '\n' ? 1 : 0);
}

std::vector<std::string> last_lines_of(const fs::path& file) {
  const std::string text = end_of_file(file);
  std::string_view rest = text;
  LastLines last;
  for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    last.add(rest.substr(0, end));
  }
  return last.lines(rest);
}

std::string last_exception_of(const fs::path& file) {
  const std::string text = end_of_file(file);
  std::string_view rest = text;
  LastException last;
  for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
    last.add(rest.substr(0, end));
  }
  last.add(rest);
  return last.text();
}

int FilteredCopy::open(const fs::path& file, std::vector<std::string> filters) {
  close();
  filters_ = std::move(filters);
  fd_ = open_log(file);
  return fd_ < 0 ? errno : 0;
}

void FilteredCopy::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

bool FilteredCopy::wanted(std::string_view line) const {
  return std::any_of(filters_.begin(), filters_.end(),
                     [&](const std::string& filter) { return line.find(filter) != std::string_view::npos; });
}

int FilteredCopy::add(std::string_view lines, std::string_view prefix) const {
  if (fd_ < 0) return 0;
  std::string text;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n') + 1);
    if (wanted(line)) text.append(prefix).append(line);
    lines.remove_prefix(line.size());
  }
  return write_all(fd_, text);
}

}  // namespace ddprun
