// Where the report's texts go: the file, at once or behind a queue, and the guardian's memory before that. report.cpp has one.
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
  void write_behind(FileQueue& files, std::function<void(std::string_view text)> keep);

  // Replaces the file by rename: whole or not at all for every death of this process. kYes: and synced, where that is possible.
  enum class Sync { kNo, kYes };
  void write(std::string text, Sync sync = Sync::kNo);

  // errno of what kept the newest text that has come to its turn out of the file; 0: it is there.
  int error() const;

 private:
  struct Newest;
  std::filesystem::path path_;
  FileQueue* files_ = nullptr;
  std::function<void(std::string_view)> keep_;
  std::shared_ptr<Newest> newest_;  // the queue's thread has it too
};

}  // namespace ddprun
