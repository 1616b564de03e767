#include "launcher/doctor/verdicts/mounts.hpp"

#include <algorithm>

#include "common/base/split.hpp"

namespace ddprun::doctor {
namespace {

// Decodes \040 and other escapes of blanks and backslashes.
std::string unescaped(std::string_view text) {
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && std::ranges::all_of(text.substr(i + 1, 3), is_octal)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

bool contains(std::string_view folder, std::string_view path) {
  if (folder == "/") return true;
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

}  // namespace

bool Mount::has(std::string_view option) const {
  const auto all = split(options, ',');
  return std::ranges::find(all, option) != all.end();
}

Mount mount_of(std::string_view path, std::string_view mountinfo) {
  Mount best;
  for (const std::string_view line : split(mountinfo, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (before.size() < 6 || after.size() < 3) continue;
    std::string point = unescaped(before[4]);
    // A later mount at the same point hides the earlier one.
    if (!contains(point, path) || point.size() < best.point.size()) continue;
    best = {std::move(point), std::string(after[0]), std::string(before[5]) + "," + std::string(after[2])};
  }
  return best;
}

}  // namespace ddprun::doctor
