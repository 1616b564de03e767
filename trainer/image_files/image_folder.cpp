#include "trainer/image_files/image_folder.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <iterator>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/bounded/short_quote.hpp"
#include "common/system/signal_masked_thread.hpp"
#include "trainer/data/fingerprint.hpp"
#include "trainer/data/samples.hpp"
#include "trainer/image_files/changes.hpp"
#include "trainer/image_files/decode.hpp"
#include "trainer/image_files/resample.hpp"
#include "trainer/reading/mapped_file.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

bool is_image_name(const fs::path& file) {
  std::string ending = file.extension().string();
  std::ranges::transform(ending, ending.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

// Returns the entries of the folder that are not hidden, sorted by name.
std::vector<fs::directory_entry> entries_of(const fs::path& folder) {
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error) throw UsageError(folder.string() + ": cannot be listed: " + error.message() + "; expected a folder of images");
  std::vector<fs::directory_entry> found;
  for (const fs::directory_entry& entry : entries) {
    if (!entry.path().filename().string().starts_with('.')) found.push_back(entry);
  }
  std::ranges::sort(found, {}, [](const fs::directory_entry& entry) { return entry.path().filename().string(); });
  return found;
}

struct ImageFiles {
  std::vector<std::string> classes;
  std::vector<fs::path> files;
  std::vector<std::int64_t> labels;
  std::string listing;  // names and sizes of the files, from which the fingerprint is computed
};

// Sorts the images: the first image of each class, then the second image of each class, and so on. So a prefix of the list has
// all classes.
void mix_classes(ImageFiles& images, const std::vector<std::size_t>& place_in_class) {
  std::vector<std::size_t> order(images.files.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return place_in_class[i]; });
  std::vector<fs::path> files;
  std::vector<std::int64_t> labels;
  for (const std::size_t i : order) {
    files.push_back(std::move(images.files[i]));
    labels.push_back(images.labels[i]);
  }
  images.files = std::move(files);
  images.labels = std::move(labels);
}

ImageFiles list_images(const fs::path& folder, std::int64_t classes) {
  ImageFiles images;
  std::vector<std::size_t> place_in_class;
  for (const fs::directory_entry& entry : entries_of(folder)) {
    std::error_code unknown;
    if (!entry.is_directory(unknown)) continue;
    const auto label = static_cast<std::int64_t>(images.classes.size());
    images.classes.push_back(entry.path().filename().string());
    const std::size_t before = images.files.size();
    for (const fs::directory_entry& file : entries_of(entry.path())) {
      if (!is_image_name(file.path()) || file.is_directory(unknown)) continue;
      place_in_class.push_back(images.files.size() - before);
      images.files.push_back(file.path());
      images.labels.push_back(label);
      images.listing +=
          images.classes.back() + "/" + file.path().filename().string() + " " + std::to_string(file.file_size(unknown)) + "\n";
    }
    if (images.files.size() == before) {
      throw UsageError(entry.path().string() + ": has no image; expected *.jpg, *.jpeg or *.png");
    }
  }
  mix_classes(images, place_in_class);
  if (images.classes.size() == static_cast<std::size_t>(classes)) return images;
  throw UsageError(folder.string() + ": has " + std::to_string(images.classes.size()) + " class folders, but data.classes is " +
                   std::to_string(classes) + "; expected one folder for each class");
}

void keep_first(ImageFiles& images, std::int64_t requested, const char* key, const fs::path& folder) {
  const auto kept = samples_to_use(requested, static_cast<std::int64_t>(images.files.size()), key, folder.string());
  images.files.resize(static_cast<std::size_t>(kept));
  images.labels.resize(static_cast<std::size_t>(kept));
}

// Calls work(i) for each i below `count`, on `threads` threads including this one. If several calls throw, rethrows the error
// of the lowest i, so that the result is the same each time.
template <class Work>
void parallel_for(std::int64_t count, std::int64_t threads, const Work& work) {
  std::atomic<std::int64_t> next{0};
  std::mutex mutex;
  std::int64_t failed_at = count;
  std::exception_ptr failure;
  const auto take_some = [&] {
    for (std::int64_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (i >= failed_at) continue;
        failed_at = i;
        failure = std::current_exception();
      }
    }
  };
  std::vector<std::thread> others;
  try {
    while (static_cast<std::int64_t>(others.size()) + 1 < std::min(threads, count))
      others.push_back(signal_masked_thread(take_some));
  } catch (const std::system_error&) {
    // If the system allows no more threads, the existing threads do the work.
  }
  take_some();
  for (std::thread& other : others) other.join();
  if (failure) std::rethrow_exception(failure);
}

// The files that are neither hidden nor used as images, such as files in folders within a class.
struct SkippedFiles {
  std::int64_t count = 0;
  bool all_counted = true;
  std::map<std::string, std::int64_t> by_ending;  // number of files by ending, such as "*.webp"
};

SkippedFiles skipped_in(const fs::path& folder) {
  constexpr std::int64_t kMaxCounted = 100'000;
  constexpr std::size_t kMaxEndings = 5;
  SkippedFiles skipped;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const bool hidden = entry->path().filename().string().starts_with('.');
    std::error_code unknown;
    if (entry->is_directory(unknown)) {
      if (hidden) entry.disable_recursion_pending();
      continue;
    }
    const bool used = entry.depth() == 1 && is_image_name(entry->path());
    if (hidden || used) continue;
    if (skipped.count == kMaxCounted) {
      skipped.all_counted = false;
      return skipped;
    }
    ++skipped.count;
    const std::string own = is_image_name(entry->path())    ? "in other folders"
                            : entry->path().has_extension() ? "*" + short_quote(entry->path().extension().string())
                                                            : "without an extension";
    const bool known = skipped.by_ending.contains(own) || skipped.by_ending.size() < kMaxEndings;
    ++skipped.by_ending[known ? own : "others"];
  }
  return skipped;
}

class ImageFolder : public Source {
 public:
  ImageFolder(const DataConfig& config, ImageFiles images)
      : config_(config), images_(std::move(images)), tables_(colour_tables(config)) {}

  std::int64_t size() const override { return static_cast<std::int64_t>(images_.files.size()); }
  Description describe() const override { return describe_image_folder(config_); }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    const std::int64_t size = config_.image_size;
    Batch batch{.tensors = {at::empty({count, PixelRows::kColours, size, size}, at::kFloat), at::empty({count}, at::kLong)},
                .weight = static_cast<double>(count)};
    auto* const images = batch.tensors[0].mutable_data_ptr<float>();
    auto* const labels = batch.tensors[1].mutable_data_ptr<std::int64_t>();
    parallel_for(count, config_.decode_threads, [&](std::int64_t i) {
      const std::int64_t sample = samples[static_cast<std::size_t>(i)];
      write_sample(sample, draws, images + i * PixelRows::kColours * size * size);
      labels[i] = images_.labels[static_cast<std::size_t>(sample)];
    });
    return batch;
  }

  // Hashes all names and sizes, and the content of some evenly spaced images. Earlier versions of ddprun applied the gamma of
  // PNG files, so they read different pixels from such files. So for images with a gamma, the fingerprint must differ from the
  // fingerprint of earlier versions.
  std::string fingerprint() const override {
    constexpr std::size_t kRead = 16;
    std::string text = images_.listing;
    const std::size_t count = images_.files.size();
    for (std::size_t i = 0; i < std::min(kRead, count); ++i) {
      text += fingerprint_of(MappedFile(images_.files[i * count / std::min(kRead, count)]).bytes());
    }
    return std::to_string(count) + " pictures of " + std::to_string(images_.classes.size()) + " classes " +
           fingerprint_of(std::string_view(text)) + (has_gamma() ? " (gamma of PNG files not applied)" : "");
  }

 private:
  // Returns true if any of the checked PNG files has a gamma value that earlier versions applied. If there are more PNG files
  // than kMaxRead, it checks only a sample of them, at regular intervals in the list.
  bool has_gamma() const {
    constexpr std::size_t kMaxRead = 16'384;
    std::vector<const fs::path*> files;
    for (const fs::path& file : images_.files) {
      if (file.extension() == ".png" || file.extension() == ".PNG") files.push_back(&file);
    }
    const std::size_t read = std::min(kMaxRead, files.size());
    for (std::size_t i = 0; i < read; ++i) {
      if (has_png_gamma(MappedFile(*files[i * files.size() / read]).bytes())) return true;
    }
    return false;
  }

  void write_sample(std::int64_t sample, const std::optional<Draws>& draws, float* out) const {
    const fs::path& file = images_.files[static_cast<std::size_t>(sample)];
    const PixelRows image = resized(read_image(file, config_), shorter_side(config_));
    write_changed(image, draw_change(config_, image.height, image.width, sample, draws), config_.image_size, tables_, out);
  }

  DataConfig config_;
  ImageFiles images_;
  ColourTables tables_;
};

}  // namespace

std::int64_t shorter_side(const DataConfig& config) {
  return config.resize > 0 ? config.resize : config.image_size;
}

PixelRows read_image(const fs::path& file, const DataConfig& config) {
  const std::int64_t shorter = shorter_side(config);
  PixelRows image = decode_image(MappedFile(file).bytes(), file.string());
  const auto [shortest, longest] = std::minmax(image.height, image.width);
  if (constexpr std::int64_t kMaxAspectRatio = 1000; longest > kMaxAspectRatio * shortest) {
    throw UsageError(file.string() + ": has " + std::to_string(image.width) + " x " + std::to_string(image.height) +
                     " pixels; expected the longer side to be at most " + std::to_string(kMaxAspectRatio) +
                     " times the shorter");
  }
  if (constexpr std::int64_t kMaxResized = std::int64_t{1} << 25; longest * shorter / shortest > kMaxResized / shorter) {
    throw UsageError(file.string() + ": would have more than " + std::to_string(kMaxResized) +
                     " pixels after its shorter side is resized to " + std::to_string(shorter) +
                     "; crop its longer side, or lower data.resize");
  }
  return image;
}

std::vector<fs::path> files_of_image_folders(const DataConfig& config) {
  std::vector<fs::path> files;
  for (const bool test : {true, false}) {
    const fs::path folder = fs::path(config.dir) / (test ? config.test_folder : config.train_folder);
    ImageFiles images = list_images(folder, config.classes);
    keep_first(images, test ? config.test_samples : config.train_samples, "", folder);
    files.insert(files.end(), std::make_move_iterator(images.files.begin()), std::make_move_iterator(images.files.end()));
  }
  return files;
}

std::vector<std::string> notes_on_image_folders(const DataConfig& config) {
  std::vector<std::string> notes;
  for (const std::string& name : {config.train_folder, config.test_folder}) {
    const fs::path folder = fs::path(config.dir) / name;
    const SkippedFiles skipped = skipped_in(folder);
    if (skipped.count == 0) continue;
    std::string endings;
    for (const auto& [ending, count] : skipped.by_ending) {
      endings += (endings.empty() ? "" : ", ") + std::to_string(count) + " " + ending;
    }
    notes.push_back(folder.string() + ": " + (skipped.all_counted ? "" : "more than ") + std::to_string(skipped.count) +
                    (skipped.count == 1 ? " file is" : " files are") + " not used (" + endings +
                    "); expected *.jpg, *.jpeg and *.png files in the folder of their class");
  }
  return notes;
}

Description describe_image_folder(const DataConfig& config) {
  return {.tensors = {{.sizes = {PixelRows::kColours, config.image_size, config.image_size}, .type = at::kFloat},
                      {.sizes = {}, .type = at::kLong}}};
}

Sources read_image_folders(const DataConfig& config) {
  const fs::path train_folder = fs::path(config.dir) / config.train_folder,
                 test_folder = fs::path(config.dir) / config.test_folder;
  ImageFiles train = list_images(train_folder, config.classes), test = list_images(test_folder, config.classes);
  for (std::size_t i = 0; i < train.classes.size(); ++i) {
    if (train.classes[i] == test.classes[i]) continue;
    throw UsageError(test_folder.string() + ": class " + std::to_string(i) + " is '" + test.classes[i] + "', but in " +
                     train_folder.string() + " it is '" + train.classes[i] + "'; expected the same folders in both");
  }
  keep_first(train, config.train_samples, "data.train_samples", train_folder);
  keep_first(test, config.test_samples, "data.test_samples", test_folder);
  return {.train = std::make_shared<ImageFolder>(config, std::move(train)),
          .test = std::make_shared<ImageFolder>(config, std::move(test))};
}

}  // namespace ddprun::trainer
