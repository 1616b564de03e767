// Where the report's texts go: to the guardian's memory, then to the file, at once or behind a queue. report.cpp has one.
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

  // As Report::write_behind().
  using Later = std::function<void(std::function<void()> act)>;
  void write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later);

  // Replaces the file by rename(2): as a whole or not at all, however this process dies. kYes: with fsync, where that is
  // possible.
  enum class Sync { kNo, kYes };
  void write(std::string text, Sync sync = Sync::kNo);
  // Behind a queue, the guardian has the text when this returns and the file gets it a moment later: what must happen soon,
  // such as the start of the next workers, does not wait behind it in the queue. Else as write().
  void write_soon(std::string text);

  // The errno for which the newest text that was tried is not in the file; 0: it is there.
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
