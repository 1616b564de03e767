// Implementation of printed_progress.hpp. Each read_ function searches one line for one kind of information. A line is in lower
// case and contains no escape sequences of a terminal.
#include "launcher/scheduler_status/printed_progress.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "common/base/numbers.hpp"

namespace ddprun {
namespace {

constexpr std::int64_t kMaxCount = 1'000'000'000'000;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || c == '_';
}

// Returns the line in lower case, without colours and cursor movements (ESC [ ... letter).
std::string plain_lower(std::string_view line) {
  std::string plain;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b' && i + 1 < line.size() && line[i + 1] == '[') {
      i += 2;
      while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
      continue;
    }
    plain += line[i] >= 'A' && line[i] <= 'Z' ? static_cast<char>(line[i] - 'A' + 'a') : line[i];
  }
  return plain;
}

std::size_t skip(std::string_view text, std::size_t at, std::string_view characters) {
  return std::min(text.find_first_not_of(characters, at), text.size());
}

struct Count {
  std::int64_t value = 0;
  std::size_t end = 0;  // index after the digits
};

// Returns the whole number at this place. Returns nullopt for "0.5", "12k" and numbers that are too large.
std::optional<Count> count_at(std::string_view text, std::size_t at) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data() + at, text.data() + text.size(), value);
  const auto end = static_cast<std::size_t>(stop - text.data());
  if (error != std::errc() || value < 0 || value > kMaxCount) return std::nullopt;
  if (end < text.size() && is_word(text[end])) return std::nullopt;
  if (end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) return std::nullopt;
  return Count{value, end};
}

struct Found {
  std::int64_t at = 0, of = 0;
};

// Reads a position such as "450/1000", "450 of 1000" or "450" at this place.
std::optional<Found> position_at(std::string_view text, std::size_t at) {
  const auto first = count_at(text, at);
  if (!first) return std::nullopt;
  std::size_t next = skip(text, first->end, " ");
  if (text.substr(next).starts_with("/")) {
    next = skip(text, next + 1, " ");
  } else if (text.substr(next).starts_with("of ")) {
    next = skip(text, next + 3, " ");
  } else {
    return Found{first->value, 0};
  }
  const auto total = count_at(text, next);
  return total && total->value > 0 && first->value <= total->value ? Found{first->value, total->value} : std::optional<Found>();
}

// Reads the position after the word, such as "epoch 2/10", "epoch: [2/10]" or "'epoch': 2".
std::optional<Found> position_after(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at > 0 && is_word(text[at - 1])) || end >= text.size() || is_word(text[end])) continue;
    if (const auto found = position_at(text, skip(text, end, " :=#[(\t'\""))) return found;
  }
  return std::nullopt;
}

bool is_metric_name(std::string_view name) {
  const bool known = name == "lr" || name == "learning_rate" || name == "ppl" || name == "perplexity" || name == "acc" ||
                     name == "accuracy" || name == "loss";
  return known || name.ends_with("_loss") || name.ends_with("_acc") || name.ends_with("_accuracy");
}

}  // namespace

bool PrintedProgress::feed(Stream stream, std::string_view bytes) {
  std::string& rest = rests_[static_cast<std::size_t>(stream)];
  bool& skips = skips_line_[static_cast<std::size_t>(stream)];
  bool found = false;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find_first_of("\r\n");
    const std::string_view piece = bytes.substr(0, end);
    skips = skips || rest.size() + piece.size() > kMaxLine;
    if (skips) {
      rest.clear();
    } else {
      rest += piece;
    }
    if (end == std::string_view::npos) return found;
    if (!skips) found = read_line(plain_lower(rest)) || found;
    rest.clear();
    skips = false;
    bytes.remove_prefix(end + 1);
  }
  return found;
}

bool PrintedProgress::read_line(std::string_view line) {
  const bool has_epoch = read_epoch(line);
  const bool has_position = read_bar(line) || read_step(line);
  return read_metrics(line) || has_epoch || has_position;
}

bool PrintedProgress::read_epoch(std::string_view line) {
  const auto found = position_after(line, "epoch");
  if (!found) return false;
  counts_from_zero_ = counts_from_zero_ || found->at == 0;
  const std::int64_t known_total = epoch_ ? epoch_->of : 0;
  epoch_ = Position{found->at, found->of > 0 ? found->of : known_total};
  return true;
}

bool PrintedProgress::read_step(std::string_view line) {
  for (const std::string_view word : {"global_step", "step", "iteration", "iter", "batch"}) {
    const auto found = position_after(line, word);
    if (!found) continue;
    step_ = Position{found->at, found->of};
    step_is_newest_ = true;
    return true;
  }
  return false;
}

// Reads a bar of tqdm, such as "train: 45%|####5 | 450/1000 [00:10<00:12, 45.00it/s, loss=0.23]".
bool PrintedProgress::read_bar(std::string_view line) {
  const std::size_t percent = line.find("%|");
  if (percent == std::string_view::npos || percent == 0 || !is_digit(line[percent - 1])) return false;
  const std::size_t bar_end = line.find("| ", percent + 2);
  if (bar_end == std::string_view::npos) return false;
  const auto found = position_at(line, skip(line, bar_end + 1, " "));
  if (!found || found->of == 0) return false;
  bar_ = Position{found->at, found->of};
  step_is_newest_ = false;
  return true;
}

bool PrintedProgress::read_metrics(std::string_view line) {
  MetricList figures;
  for (std::size_t at = 0; at < line.size() && figures.size() < kMaxMetricsOfLine;) {
    if (!is_word(line[at])) {
      ++at;
      continue;
    }
    std::size_t end = at;
    while (end < line.size() && is_word(line[end])) ++end;
    const std::string_view name = line.substr(at, end - at);
    at = end;
    if (!is_metric_name(name)) continue;
    const auto value = leading_decimal(line.substr(skip(line, end, " :='\"")));
    const bool separated = end < line.size() && std::string_view(" :='\"").find(line[end]) != std::string_view::npos;
    if (value && separated && std::isfinite(value->value)) figures.push_back({std::string(name), value->value});
  }
  if (figures.empty()) return false;
  has_metrics_ = true;
  metrics_.figures.clear();
  for (Metric& figure : figures) {
    if (figure.name == "loss") {
      metrics_.loss = figure.value;
    } else if (figure.name == "lr" || figure.name == "learning_rate") {
      metrics_.lr = figure.value;
    } else {
      metrics_.figures.push_back(std::move(figure));
    }
  }
  return true;
}

std::optional<channel::Progress> PrintedProgress::progress() const {
  if (!epoch_ && !step_ && !bar_ && !has_metrics_) return std::nullopt;
  channel::Progress progress = metrics_;
  const Position within = (step_is_newest_ || !bar_) ? step_.value_or(Position{}) : *bar_;
  progress.step = within.at;
  if (epoch_ && epoch_->of > 0) {
    progress.epochs = epoch_->of;
    progress.epoch = std::clamp<std::int64_t>(epoch_->at - (counts_from_zero_ ? 0 : 1), 0, epoch_->of - 1);
    const std::int64_t steps = std::max<std::int64_t>(within.of, 1);
    const std::int64_t done = within.of > 0 ? within.at : 0;
    progress.steps_total = progress.epochs * steps;
    progress.step = progress.epoch * steps + done;
  } else if (!epoch_ && step_ && step_is_newest_) {
    progress.steps_total = step_->of;
  }
  return progress;
}

}  // namespace ddprun
