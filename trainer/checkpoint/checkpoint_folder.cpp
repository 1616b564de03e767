#include "trainer/checkpoint/checkpoint_folder.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <system_error>

#include "common/base/numbers.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";

[[noreturn]] void fail_link(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

std::string folder_name(std::int64_t step) {
  char name[40];
  std::snprintf(name, sizeof name, "step-%09lld", static_cast<long long>(step));
  return name;
}

std::optional<std::int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kStepPrefix)) return std::nullopt;
  const auto step = exact_number<std::int64_t>(std::string_view(name).substr(kStepPrefix.size()));
  return step && *step >= 0 && folder_name(*step) == name ? step : std::nullopt;
}

std::string published_name(const std::string& name) {
  const std::size_t dot = std::min(name.find('.'), name.size());
  std::string_view ending = std::string_view(name).substr(dot);
  for (const std::string_view word : {".superseded", ".bad"}) {
    if (!ending.starts_with(word)) continue;
    ending.remove_prefix(word.size());
    const bool numbered =
        ending.size() > 1 && ending.front() == '-' && ending.find_first_not_of("0123456789", 1) == std::string_view::npos;
    return ending.empty() || numbered ? name.substr(0, dot) : name;
  }
  return name;
}

std::vector<Published> newest_first(const fs::path& checkpoints_dir) {
  std::vector<Published> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints_dir, error), end; !error && entry != end; entry.increment(error)) {
    if (const auto step = step_of(entry->path().filename().string())) found.push_back({*step, entry->path()});
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    throw std::system_error(error, "cannot list " + checkpoints_dir.string());
  }
  std::sort(found.begin(), found.end(), [](const Published& a, const Published& b) { return a.step > b.step; });
  return found;
}

void point_latest_to(const fs::path& checkpoints_dir, const std::string& name) {
  const fs::path temporary = checkpoints_dir / (".tmp-latest-" + std::to_string(::getpid()));
  const fs::path latest = checkpoints_dir / kLatest;
  if (::unlink(temporary.c_str()) != 0 && errno != ENOENT) fail_link("cannot remove " + temporary.string());
  if (::symlink(name.c_str(), temporary.c_str()) != 0) fail_link("cannot create the link " + temporary.string());
  if (::rename(temporary.c_str(), latest.c_str()) != 0) {
    const int reason = errno;
    ::unlink(temporary.c_str());
    errno = reason;
    fail_link("cannot replace the link " + latest.string());
  }
  fsync_directory(checkpoints_dir);
}

std::string remove_folder(const fs::path& path) {
  // The counter makes the temporary name unique, even if an earlier temporary folder could not be removed.
  static std::atomic<unsigned> counter{0};
  const std::string name = path.filename().string();
  fs::path target = path;
  std::error_code error;
  if (!name.starts_with(kRemovedPrefix)) {
    target = path.parent_path() / (std::string(kRemovedPrefix) + name + "-" + std::to_string(::getpid()) + "-" +
                                   std::to_string(counter.fetch_add(1)));
    fs::rename(path, target, error);
    if (error) return error.message();
  }
  fs::remove_all(target, error);
  return error ? error.message() : "";
}

}  // namespace ddprun::trainer
