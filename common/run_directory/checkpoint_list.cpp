#include "common/run_directory/checkpoint_list.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <system_error>

namespace ddprun {

namespace fs = std::filesystem;

std::vector<fs::path> published_checkpoints(const RunLayout& layout) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(layout.checkpoints(), error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto digits = std::string_view(name).substr(std::min<std::size_t>(name.size(), 5));
    if (name.starts_with("step-") && digits.size() >= 9 && digits.find_first_not_of("0123456789") == std::string_view::npos) {
      found.push_back(entry->path());
    }
  }
  std::sort(found.begin(), found.end(), [](const fs::path& a, const fs::path& b) {
    const std::string& left = a.native();
    const std::string& right = b.native();
    return left.size() != right.size() ? left.size() > right.size() : left > right;
  });
  return found;
}

}  // namespace ddprun
