// Implementation of worker_output_files.hpp. The directory may be shared with other users, so a symbolic link of another user
// is never followed (others_link.hpp).
#include "launcher/output/worker_output_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "common/shared_folder/others_link.hpp"
#include "common/system/write_all.hpp"
#include "launcher/events/printf_text.hpp"
#include "launcher/output/last_exception.hpp"
#include "launcher/output/last_lines.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr off_t kTailBytes = 32 << 10;

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

// Returns the last 32 KiB of the file, or "" if the file cannot be read. If the file is longer, the first line of this text may
// be incomplete, so it is removed.
std::string end_of_file(const fs::path& file) {
  const Descriptor in(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const off_t size = ::lseek(in.get(), 0, SEEK_END);
  const off_t begin = std::max<off_t>(0, size - kTailBytes);
  std::string text = bytes_of_file(in.get(), begin, size);
  if (begin > 0) text.erase(0, text.find('\n') + 1);  // if there is no newline, npos + 1 is 0, so nothing is erased
  return text;
}

}  // namespace

fs::path round_folder(const fs::path& root, LogLayout layout, int round, int restart_count) {
  return root / (layout == LogLayout::kRounds ? printed("round-%03d", round) : printed("attempt_%d", restart_count));
}

fs::path worker_folder(const fs::path& round, LogLayout layout, int rank, int local_rank) {
  return round / (layout == LogLayout::kRounds ? printed("rank-%05d", rank) : std::to_string(local_rank));
}

fs::path standby_folder(const fs::path& root, int standby) {
  return root / printed("standby-%03d", standby);
}

const char* log_name(Stream stream) {
  return stream == Stream::kStdout ? "stdout.log" : "stderr.log";
}

int make_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0) return 0;
  if (errno == EEXIST) return is_others_link(folder) ? ELOOP : 0;
  if (errno != ENOENT) return errno;
  std::error_code error;  // A parent directory is missing. This happens at most once in a run, so speed does not matter.
  fs::create_directories(folder, error);
  return error.value();
}

int open_log(const fs::path& file) {
  return open_unless_others_link(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

std::int64_t line_count(const fs::path& file) {
  constexpr off_t kMaxBytes = 1 << 20;
  const Descriptor in(file.empty() ? -1 : ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const off_t size = ::lseek(in.get(), 0, SEEK_END);
  const std::string text = size > 0 && size <= kMaxBytes ? bytes_of_file(in.get(), 0, size) : std::string();
  return std::count(text.begin(), text.end(), '\n') + (!text.empty() && text.back() != '\n' ? 1 : 0);
}

std::vector<std::string> last_lines_of(const fs::path& file) {
  LastLines last;
  for_each_line(end_of_file(file), [&](std::string_view line) { last.add(line); });
  return last.lines();
}

std::string last_exception_of(const fs::path& file) {
  LastException last;
  for_each_line(end_of_file(file), [&](std::string_view line) { last.add(line); });
  return last.text();
}

int FilteredCopy::open(const fs::path& file, std::vector<std::string> filters) {
  filters_ = std::move(filters);
  file_ = Descriptor(open_log(file));
  return file_.get() < 0 ? errno : 0;
}

bool FilteredCopy::wanted(std::string_view line) const {
  return std::any_of(filters_.begin(), filters_.end(),
                     [&](const std::string& filter) { return line.find(filter) != std::string_view::npos; });
}

int FilteredCopy::add(std::string_view lines, std::string_view prefix) const {
  if (file_.get() < 0) return 0;
  std::string text;
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find('\n') + 1);
    if (wanted(line)) text.append(prefix).append(line);
    lines.remove_prefix(line.size());
  }
  return write_all(file_.get(), text);
}

}  // namespace ddprun
