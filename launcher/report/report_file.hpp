// Writes the report's texts: first to the guardian's memory, then to the file, either directly or through a queue. report.cpp
// has one.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "common/system/file_queue.hpp"

namespace ddprun {

class ReportFile {
 public:
  explicit ReportFile(std::filesystem::path path);
  const std::filesystem::path& path() const { return path_; }

  // See Report::write_behind().
  using Later = std::function<void(std::function<void()> act)>;
  void write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later);

  // Replaces the file by rename(2), so a crash leaves the old or the new text as a whole. kYes: with fsync, where that is
  // possible.
  enum class Sync { kNo, kYes };
  void write(std::string text, Sync sync = Sync::kNo);
  // With a queue: the guardian has the text when this returns, and the write to the file is queued a moment later. So urgent
  // work, such as files for the next workers, does not wait behind it in the queue. Without a queue: the same as write().
  void write_soon(std::string text);

  // 0 if the newest attempted write succeeded, else its errno.
  int error() const;

 private:
  struct Newest;
  bool keep_text(std::string text, Sync sync);
  void add_piece();

  std::filesystem::path path_;
  FileQueue* files_ = nullptr;
  std::function<void(std::string_view)> keep_;
  Later later_;
  std::shared_ptr<Newest> newest_;  // shared with the queue's thread
};

}  // namespace ddprun
