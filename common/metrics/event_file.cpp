// Implementation of event_file.hpp.
#include "common/metrics/event_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <system_error>
#include <utility>

#include "common/metrics/event_record.hpp"
#include "common/system/host_name.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The seconds in the new file's name: now, or at least one more than in the newest existing name. Otherwise a restart within a
// second, or a clock that was set back, would sort the new file before that one.
std::int64_t next_seconds(const fs::path& folder) {
  auto seconds = std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    std::int64_t found = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), found);
    seconds = std::max<std::int64_t>(seconds, found + 1);
  }
  return seconds;
}

fs::path new_name(const fs::path& folder) {
  static std::atomic<int> opened{0};
  return folder / (std::string(kPrefix) + std::to_string(next_seconds(folder)) + "." + host_file_name() + "." +
                   std::to_string(::getpid()) + "." + std::to_string(opened++));
}

}  // namespace

struct EventFile::Impl {
  fs::path folder;
  fs::path path;
  int fd = -1;
  std::function<void(const std::string&)> on_trouble;
  bool troubled = false;  // a problem was reported
  bool torn = false;      // a write failed
  std::string buffer;

  void trouble(const std::string& what) {
    if (!std::exchange(troubled, true) && on_trouble) on_trouble(what);
  }

  void open() {
    try {
      fs::create_directories(folder);
      path = new_name(folder);
    } catch (const fs::filesystem_error& error) {
      return trouble(std::string(error.what()) + "; TensorBoard's file is tried again");
    }
    fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) trouble("cannot make " + path.string() + ": " + std::strerror(errno) + "; TensorBoard's file is tried again");
  }

  void write_out() {
    constexpr std::size_t kMostKept = 1 << 20;
    if (fd < 0) open();
    if (fd < 0 && buffer.size() <= kMostKept) return;  // kept until the file can be created
    // After a failed write the file may end in half a record, and readers stop there. So later records would not be read.
    std::string_view rest = fd >= 0 && !torn ? std::string_view(buffer) : std::string_view();
    while (!rest.empty()) {
      const ssize_t put = ::write(fd, rest.data(), rest.size());
      if (put < 0 && errno == EINTR) continue;
      if (put < 0) {
        torn = true;
        trouble("cannot write " + path.string() + ": " + std::strerror(errno) + "; TensorBoard's figures end here");
        break;
      }
      rest.remove_prefix(static_cast<std::size_t>(put));
    }
    buffer.clear();
  }
};

EventFile::EventFile(const fs::path& folder, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble)
    : impl_(std::make_unique<Impl>()) {
  impl_->on_trouble = std::move(on_trouble);
  impl_->folder = folder;
  impl_->buffer += tfrecord(file_version_event(wall_time_s()));
  // Readers drop this step and later ones after START; the step from which the run resumed stays.
  impl_->buffer += tfrecord(session_start_event(wall_time_s(), resume_step > 0 ? resume_step + 1 : 0));
  impl_->write_out();
}

EventFile::~EventFile() {
  if (impl_->fd >= 0) ::close(impl_->fd);
}

void EventFile::scalars(std::int64_t step, const std::vector<Scalar>& figures) {
  for (const Scalar& figure : figures) {
    impl_->buffer += tfrecord(scalar_event(wall_time_s(), step, figure.tag, static_cast<float>(figure.value)));
  }
  impl_->write_out();
}

}  // namespace ddprun
