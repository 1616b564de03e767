// Implementation of last_exception.hpp: a state machine that reads one line at a time. In kOutside it searches for a traceback.
// In kFrames it skips the stack frames. In kMessage it collects the exception's message until an empty line.
#include "launcher/output/last_exception.hpp"

#include <algorithm>
#include <cctype>

#include "launcher/output/plain_text.hpp"

namespace ddprun {
namespace {

constexpr std::string_view kHeader = "Traceback (most recent call last):";
constexpr std::string_view kGroupHeader = "+ Exception Group Traceback (most recent call last):";

// Removes the prefix "[rank12]: ", which PyTorch's excepthook writes before every line. In an empty line the prefix has no
// space after the colon.
std::string_view without_rank(std::string_view line) {
  constexpr std::string_view kRank = "[rank";
  if (!line.starts_with(kRank)) return line;
  std::size_t at = kRank.size();
  while (at < line.size() && std::isdigit(static_cast<unsigned char>(line[at])) != 0) ++at;
  if (at == kRank.size() || line.substr(at, 2) != "]:") return line;
  line.remove_prefix(at + 2);
  if (line.starts_with(' ')) line.remove_prefix(1);
  return line;
}

std::string_view trimmed(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return line;
}

bool indented(std::string_view line) {
  return line.starts_with(' ') || line.starts_with('\t');
}

// Returns true if the line starts with a dotted name, followed by a colon or the end of the line. Examples are "ValueError: x",
// "KeyboardInterrupt" and "__main__.Diverged: loss is nan".
bool names_exception(std::string_view line) {
  std::size_t at = 0;
  while (at < line.size() && (std::isalnum(static_cast<unsigned char>(line[at])) != 0 || line[at] == '_' || line[at] == '.' ||
                              (static_cast<unsigned char>(line[at]) & 0x80U) != 0 || line.substr(at).starts_with("<locals>"))) {
    at += line[at] == '<' ? std::string_view("<locals>").size() : 1;
  }
  if (at == 0 || std::isdigit(static_cast<unsigned char>(line.front())) != 0) return false;
  return at == line.size() || line.substr(at, 2) == ": " || line.substr(at) == ":";
}

// Removes the left border "  | " of an exception group's traceback and writes the remaining text to `inside`. Returns false if
// the line has no such border.
bool in_frame(std::string_view line, std::string_view& inside) {
  const std::size_t bar = line.find_first_not_of(' ');
  if (bar == std::string_view::npos || bar == 0 || (line[bar] != '|' && line[bar] != '+')) return false;
  inside = line.substr(bar);
  if (inside.starts_with('|')) {
    inside.remove_prefix(1);
    if (inside.starts_with(' ')) inside.remove_prefix(1);
  }
  return true;
}

}  // namespace

void LastException::begin(bool group) {
  state_ = State::kFrames;
  in_group_ = group;
}

void LastException::message_line(std::string_view line) {
  if (message_.size() >= kLines || bytes_ >= kBytes) return;
  message_.emplace_back(line.substr(0, kBytes - bytes_));
  bytes_ += message_.back().size();
}

// Exception groups may be nested. The first exception line names the outermost group, and later ones name the exceptions in it.
void LastException::add_to_group(std::string_view line) {
  std::string_view inside;
  if (!in_frame(line, inside)) {
    state_ = State::kOutside;
    in_group_ = false;
    return add(line);
  }
  if (inside.starts_with('+') || indented(inside) || inside.ends_with(kHeader) || !names_exception(inside)) return;
  if (state_ == State::kFrames) {
    message_.clear();
    group_messages_.clear();
    bytes_ = 0;
    message_line(inside);
    state_ = State::kMessage;
  } else if (inside.find(" sub-exception") == std::string_view::npos) {
    group_messages_.emplace_back(group_messages_.size() < kGroup ? inside.substr(0, kLineBytes / 2) : std::string_view());
  }
}

void LastException::add(std::string_view whole) {
  whole = whole.substr(0, kLineBytes);
  std::string plain;
  if (whole.find('\x1b') != std::string_view::npos) whole = plain = plain_text(whole);
  const std::string_view line = trimmed(without_rank(whole));
  if (line.ends_with(kHeader)) {
    if (line == kHeader) return begin(false);
    if (const std::size_t at = line.find_first_not_of(' '); line.substr(at) == kGroupHeader) return begin(true);
  }
  if (state_ == State::kOutside) {
    if (line.starts_with("  File \"") && line.find("\", line ") != std::string_view::npos) begin(false);
    return;
  }
  if (in_group_) return add_to_group(line);
  if (state_ == State::kFrames) {
    if (line.empty() || indented(line)) return;
    if (!names_exception(line)) return;  // another thread printed this line between the frames of the traceback
    message_.clear();
    group_messages_.clear();
    bytes_ = 0;
    message_line(line);
    state_ = State::kMessage;
    return;
  }
  // The message and its notes end at an empty line or a new traceback.
  if (line.empty()) {
    state_ = State::kOutside;
  } else {
    message_line(line);
  }
}

std::string LastException::text() const {
  if (message_.empty()) return {};
  std::string text = message_.front();
  if (!group_messages_.empty()) {
    std::string held;
    for (const std::string& one : group_messages_) {
      if (!one.empty()) held += (held.empty() ? "" : "; ") + one;
    }
    text += ": " + held;
    if (group_messages_.size() > kGroup) text += "; and " + std::to_string(group_messages_.size() - kGroup) + " more";
  }
  for (std::size_t i = 1; i < message_.size(); ++i) text += "\n" + message_[i];
  return text;
}

}  // namespace ddprun
