// Writes the texts of the report: first to the guardian's memory, then to the file. A file is written either directly or by the
// thread of a queue. report.cpp owns a ReportFile.
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

  // Report::write_behind() describes the arguments.
  using Later = std::function<void(std::function<void()> act)>;
  void write_behind(FileQueue& files, std::function<void(std::string_view text)> keep, Later later);

  // Replaces the file by rename(2), so after a crash it contains either the whole old text or the whole new text. kYes adds
  // fsync, if the file system supports it.
  enum class Sync { kNo, kYes };
  void write(std::string text, Sync sync = Sync::kNo);
  // If there is no queue, this function does the same as write(). With a queue, the guardian has the text when the function
  // returns. The file write is queued a short time later. So urgent file work, such as the logs of the next workers, does not
  // wait behind the report in the queue.
  void write_deferred(std::string text);

  // Returns 0 if the newest attempt to write the file succeeded, otherwise its errno.
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
