#include "common/metrics/event_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "common/metrics/event_record.hpp"
#include "common/system/host_name.hpp"
#include "common/system/write_all.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "events.out.tfevents.";

double wall_time_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Returns the seconds for the name of the new file: the current time, or a second more than in the newest existing name if
// that is later. So the new name sorts last, even if the previous file was created less than a second ago, or if the clock was
// set back.
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

EventFile::EventFile(const fs::path& folder, std::int64_t resume_step, std::function<void(const std::string&)> on_trouble)
    : folder_(folder), on_trouble_(std::move(on_trouble)) {
  buffer_ += tfrecord(file_version_event(wall_time_s()));
  // TensorBoard drops data from older files, starting at the step of this event. TensorBoard must keep the data of the resume
  // step, so the event contains the step after the resume step.
  buffer_ += tfrecord(session_start_event(wall_time_s(), resume_step > 0 ? resume_step + 1 : 0));
  write_out();
}

void EventFile::scalars(std::int64_t step, const std::vector<Scalar>& figures) {
  for (const Scalar& figure : figures) {
    buffer_ += tfrecord(scalar_event(wall_time_s(), step, figure.tag, static_cast<float>(figure.value)));
  }
  write_out();
}

void EventFile::trouble(const std::string& what) {
  if (!std::exchange(troubled_, true) && on_trouble_) on_trouble_(what);
}

void EventFile::open() {
  try {
    fs::create_directories(folder_);
    path_ = new_name(folder_);
  } catch (const fs::filesystem_error& error) {
    return trouble(std::string(error.what()) + "; writing the TensorBoard file is retried");
  }
  opened_ = Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644));
  if (opened_.get() < 0)
    trouble("cannot create " + path_.string() + ": " + std::strerror(errno) + "; writing the TensorBoard file is retried");
}

void EventFile::write_out() {
  constexpr std::size_t kMaxKeptBytes = 1 << 20;
  if (opened_.get() < 0) open();
  if (opened_.get() < 0 && buffer_.size() <= kMaxKeptBytes) return;  // keep the data until the file can be created
  // After a failed write, the file may end with an incomplete record. Readers stop at that record, so no further data is
  // written.
  const int error = opened_.get() >= 0 && !torn_ ? write_all(opened_.get(), buffer_) : 0;
  if (error != 0) {
    torn_ = true;
    trouble("cannot write " + path_.string() + ": " + std::strerror(error) + "; no further metrics are written to it");
  }
  buffer_.clear();
}

}  // namespace ddprun
