#include "trainer/image_files/image_check.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/signal_masked_thread.hpp"
#include "trainer/data/fingerprint.hpp"
#include "trainer/image_files/image_folder.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kKeyBytes = 16;  // hexadecimal digits
constexpr std::size_t kKeysPerWrite = 256;
constexpr std::size_t kMaxResultBytes = std::size_t{1} << 27;  // enough for the results of 8 million images
constexpr std::size_t kMaxNamed = 20;
constexpr int kLowestPriority = 19;

// Returns a hash of the image's path, size and modification time, and of the size to which it is resized; nullopt if stat()
// fails.
std::optional<std::string> key_of(const fs::path& file, std::int64_t shorter) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) return {};
  const std::string facts = file.string() + '\n' + std::to_string(status.st_size) + ' ' +
                            std::to_string(status.st_mtim.tv_sec) + ' ' + std::to_string(status.st_mtim.tv_nsec) + ' ' +
                            std::to_string(shorter);
  return fingerprint_of(std::string_view(facts));
}

// The keys of images that earlier checks found intact. This check appends its own keys to the file of this rank.
class Results {
 public:
  explicit Results(const DataCheckPlace& place) {
    if (place.folder.empty()) return;
    std::error_code none;
    for (fs::directory_iterator entry(place.folder, none), end; !none && entry != end; entry.increment(none))
      read(entry->path());
    // create_directory() does not create parent folders. This is intended: the run directory must not be created again if a
    // user has moved it away.
    fs::create_directory(place.folder, none);
    const fs::path own = place.folder / ("rank-" + std::to_string(place.rank));
    file_ = Descriptor(::open(own.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  }

  bool has(const std::string& key) const { return known_.contains(key); }

  // Records that the images with these keys are intact. Write errors are ignored: the images are then decoded again when the
  // run starts the next time.
  void keep(const std::vector<std::string>& keys) const {
    std::string lines;
    for (const std::string& key : keys) lines += key + '\n';
    if (file_.get() < 0) return;
    [[maybe_unused]] const ssize_t written = ::write(file_.get(), lines.data(), lines.size());
  }

 private:
  void read(const fs::path& file) {
    try {
      const std::string text = read_bounded(file, kMaxResultBytes, "a list of checked images");
      // A line that was truncated by a crash has a different length, and is skipped.
      for (std::string_view rest = text; !rest.empty();) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        if (line.size() == kKeyBytes) known_.emplace(line);
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
      }
    } catch (const Error&) {
      // The file is unreadable, so the images in it are decoded again.
    }
  }

  std::unordered_set<std::string> known_;
  Descriptor file_;
};

class ImageCheck : public DataCheck {
 public:
  ImageCheck(const DataConfig& config, DataCheckPlace place)
      : config_(config), place_(std::move(place)), main_(signal_masked_thread([this] { check(); })) {}

  ~ImageCheck() override {
    stop_ = true;
    main_.join();
  }

  void await(std::chrono::milliseconds time) override {
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, time, [this] { return is_done_; });
    in_background_ = true;
    if (problems_.empty()) return;
    std::string text = problems_.front();
    for (std::size_t i = 1; i < problems_.size(); ++i) text += (i == 1 ? ". Also: " : "; ") + problems_[i];
    throw UsageError(text + ". Replace or remove " + (problems_.size() == 1 ? "this file" : "these files"));
  }

 private:
  void check() {
    try {
      const std::vector<fs::path> files = own_files();
      const Results results(place_);
      std::vector<std::thread> others;
      try {
        while (static_cast<std::int64_t>(others.size()) + 1 < config_.decode_threads) {
          others.push_back(signal_masked_thread([&] { check_some(files, results, /*other=*/true); }));
        }
      } catch (const std::system_error&) {
        // If the system allows no more threads, the existing threads do the work.
      }
      check_some(files, results, /*other=*/false);
      for (std::thread& other : others) other.join();
    } catch (...) {
      // Errors such as an unreadable folder or lack of memory are ignored here. The code that reads the images for training
      // reports them.
    }
    const std::lock_guard lock(mutex_);
    is_done_ = true;
    ended_.notify_all();
  }

  std::vector<fs::path> own_files() const {
    std::vector<fs::path> own;
    std::size_t i = 0;
    for (fs::path& file : files_of_image_folders(config_)) {
      if (i++ % static_cast<std::size_t>(place_.world) == static_cast<std::size_t>(place_.rank)) own.push_back(std::move(file));
    }
    return own;
  }

  // This is the main function of each thread of the check. If memory is exhausted, the thread ends without an error, because
  // training decodes the remaining images when it needs them.
  void check_some(const std::vector<fs::path>& files, const Results& results, bool other) try {
    std::vector<std::string> sound;
    bool has_low_priority = false;
    for (std::size_t i = next_++; i < files.size() && !stop_; i = next_++) {
      check_one(files[i], results, sound);
      if (sound.size() >= kKeysPerWrite) {
        results.keep(sound);
        sound.clear();
      }
      if (!in_background_ || has_low_priority) continue;
      if (other) break;
      has_low_priority = true;
      ::setpriority(PRIO_PROCESS, 0, kLowestPriority);  // on Linux this sets the priority of this thread
    }
    results.keep(sound);
  } catch (const std::exception&) {
  }

  void check_one(const fs::path& file, const Results& results, std::vector<std::string>& sound) {
    const std::optional<std::string> key = key_of(file, shorter_side(config_));
    if (key && results.has(*key)) return;
    try {
      read_image(file, config_);
      if (key) sound.push_back(*key);
    } catch (const UsageError& problem) {
      note(problem.what());
    } catch (const std::exception&) {
      // An error such as lack of memory or of descriptors does not mean that the image is damaged.
    }
  }

  void note(const std::string& problem) {
    const std::lock_guard lock(mutex_);
    if (problems_.size() == kMaxNamed) return;
    problems_.push_back(problem);
    if (in_background_ && place_.warn)
      place_.warn(problem + ". Training will fail when it reaches this image; replace or remove the file before then");
  }

  const DataConfig config_;
  const DataCheckPlace place_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> in_background_{false};  // true after await(): training runs in parallel
  std::mutex mutex_;                        // guards the members below
  std::condition_variable ended_;
  bool is_done_ = false;
  std::vector<std::string> problems_;
  std::thread main_;  // last member, because the thread uses all other members
};

}  // namespace

std::unique_ptr<DataCheck> check_images(const DataConfig& config, const DataCheckPlace& place) {
  return std::make_unique<ImageCheck>(config, place);
}

}  // namespace ddprun::trainer
