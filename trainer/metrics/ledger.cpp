#include "trainer/metrics/ledger.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/shared_folder/others_link.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun::trainer {
namespace {

std::filesystem::path ledger_file(const std::filesystem::path& folder, int rank) {
  char name[32];
  std::snprintf(name, sizeof name, "rank-%05d.jsonl", rank);
  return folder / name;
}

// Returns true if the line is valid JSON and its step is not after `resume_step`.
bool is_before_cut(const std::string& line, std::int64_t resume_step) {
  const auto entry = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object() || !entry.contains("step") || !entry["step"].is_number_integer()) return false;
  return entry["step"].get<std::int64_t>() <= resume_step;
}

void cut_ledger_file(const std::filesystem::path& file, std::int64_t resume_step) {
  if (!std::filesystem::is_regular_file(file)) return;  // a device or a pipe stores no lines, and reading it may never end
  std::ifstream in(file, std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::string kept;
  for (std::size_t begin = 0; begin < content.size();) {
    const std::size_t end = content.find('\n', begin);
    if (end == std::string::npos) break;  // the last line is incomplete
    if (is_before_cut(content.substr(begin, end - begin), resume_step)) kept.append(content, begin, end + 1 - begin);
    begin = end + 1;
  }
  if (kept.size() == content.size()) return;
  if (!content.starts_with(kept)) return write_file_atomically(file, kept);
  // All removed lines are at the end, so the file is truncated. Truncation is atomic and needs no disk space.
  if (::truncate(file.c_str(), static_cast<off_t>(kept.size())) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot truncate " + file.string());
  }
}

}  // namespace

std::optional<std::int64_t> newest_in_ledger(const std::filesystem::path& folder, int rank) {
  std::ifstream in(ledger_file(folder, rank), std::ios::binary);
  if (!in) return std::nullopt;
  std::string last;
  for (std::string line; std::getline(in, line);) last = std::move(line);
  const auto entry = nlohmann::json::parse(last, nullptr, /*allow_exceptions=*/false);
  if (!entry.is_object() || !entry.contains("step")) return 0;
  return entry["step"].get<std::int64_t>();
}

void cut_ledger(const std::filesystem::path& folder, std::int64_t resume_step,
                const std::function<void(const std::string&)>& on_trouble) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("rank-") || !name.ends_with(".jsonl")) continue;
    try {
      cut_ledger_file(entry.path(), resume_step);
    } catch (const std::system_error& error) {
      on_trouble(std::string(error.what()) + "; this ledger will list the steps after " + std::to_string(resume_step) +
                 " twice");
    }
  }
}

Ledger::Ledger(const std::filesystem::path& folder, int rank, std::function<void(const std::string&)> on_trouble)
    : file_(ledger_file(folder, rank).string()), on_trouble_(std::move(on_trouble)) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  opened_ = Descriptor(open_unless_others_link(file_, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0644));
  if (opened_.get() < 0) on_trouble_(file_ + ": " + std::generic_category().message(errno) + "; this rank writes no ledger");
}

void Ledger::write(std::int64_t step, std::int64_t epoch, std::int64_t position, std::span<const std::int64_t> samples) {
  if (opened_.get() < 0) return;
  line_ = "{\"step\":" + std::to_string(step) + ",\"epoch\":" + std::to_string(epoch) +
          ",\"position\":" + std::to_string(position) + ",\"samples\":[";
  for (const std::int64_t sample : samples) {
    if (line_.back() != '[') line_ += ',';
    line_ += std::to_string(sample);
  }
  line_ += "]}\n";
  const ssize_t written = ::write(opened_.get(), line_.data(), line_.size());
  if (written == static_cast<ssize_t>(line_.size())) return;
  const int error = written < 0 ? errno : ENOSPC;
  // Removes the partial line now. It would also be removed when the run starts the next time, but other programs may read the
  // file before that.
  if (written > 0) {
    const off_t size = ::lseek(opened_.get(), 0, SEEK_END);
    [[maybe_unused]] const int cut = size < written ? 0 : ::ftruncate(opened_.get(), size - written);
  }
  opened_ = Descriptor();
  on_trouble_(file_ + ": " + std::generic_category().message(error) + "; the ledger ends at step " + std::to_string(step - 1));
}

}  // namespace ddprun::trainer
