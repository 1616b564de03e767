// Detects that the run directory was removed or renamed. The agent (agent_shell.cpp) has one watch if it has locked the
// directory. The kernel does not report a removal by another machine. So the agent also calls probe() at the start of each
// round and of each worker. The watch reports the removal once. It then creates the directory again
// (common/run_directory/moved_run.hpp) and keeps the lock of the new directory.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/run_directory/moved_run.hpp"
#include "common/system/descriptor.hpp"
#include "common/system/file_queue.hpp"

namespace ddprun {

class RunDirectoryWatch {
 public:
  // `lock_fd` belongs to the caller. `config` is the text for config.json in a new directory, or empty if the job has no
  // config. If inotify is not available, a removal is detected only by probe() or after a change of the mounts.
  RunDirectoryWatch(boost::asio::io_context& io, FileQueue& files, std::filesystem::path run_dir, int lock_fd,
                    std::string config, std::function<void()> on_removed);
  // Starts a check on the file queue's thread, since a file system may take long to answer.
  void probe();

 private:
  // The directory that is watched now. Only the file queue's thread uses it.
  struct WatchedDirectory {
    std::filesystem::path run_dir;
    std::string config;
    DirectoryIdentity directory{};
    int lock_fd = -1;
    Descriptor own_lock{};  // the lock, if probe() opened it
    WatchedDirectory(std::filesystem::path path, std::string text, int fd);
    // If both are false, the directory is still in its place.
    struct Changes {
      bool removed = false;
      bool remade = false;
    };
    Changes probe();
  };

  void watch_directory();
  void wait();
  bool concerns_directory(std::size_t bytes) const;
  void wait_for_mounts();

  boost::asio::posix::stream_descriptor events_;
  boost::asio::posix::stream_descriptor mounts_;
  FileQueue& files_;
  std::filesystem::path run_dir_;
  std::shared_ptr<WatchedDirectory> watched_;
  std::function<void()> on_removed_;  // empty after the removal was reported
  int parent_watch_ = -1;
  alignas(8) std::array<char, 4096> buffer_{};
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // expires with this object; file work that ends later checks it
};

}  // namespace ddprun
