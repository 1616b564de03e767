// Watches whether the run directory is removed or moved. The agent (agent_shell.cpp) owns one if it holds the directory's lock.
// The agent also calls look() at the start of each round and of each worker, since the kernel does not report a removal by
// another machine. The watch reports a removal once. It then makes the folder again (common/run_directory/moved_run.hpp), with
// a lock that it keeps.
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
#include "common/system/file_queue.hpp"

namespace ddprun {

class RunDirectoryWatch {
 public:
  // The caller keeps `lock_fd`. `config`: the text of config.json for a new folder; empty: none. If the kernel reports no
  // event, only look() notices a removal.
  RunDirectoryWatch(boost::asio::io_context& io, FileQueue& files, std::filesystem::path run_dir, int lock_fd,
                    std::string config, std::function<void()> on_removed);
  // Looks on the queue's thread, since the answer may take time.
  void look();

 private:
  // The directory that is watched now. Only work on the file queue uses it.
  struct Place {
    std::filesystem::path run_dir;
    std::string config;
    DirectoryIdentity directory{};
    int lock_fd = -1;
    bool is_ours = false;  // we opened the lock, so we close it
    Place(std::filesystem::path path, std::string text, int fd);
    ~Place();
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    // Both false: nothing has changed.
    struct Seen {
      bool removed = false;
      bool remade = false;
    };
    Seen look();
  };

  void watch_directory();
  void wait();
  bool concerns_directory(std::size_t bytes) const;
  void wait_for_mounts();

  boost::asio::posix::stream_descriptor events_;
  boost::asio::posix::stream_descriptor mounts_;
  FileQueue& files_;
  std::filesystem::path run_dir_;
  std::shared_ptr<Place> place_;
  std::function<void()> on_removed_;  // empty after the removal was reported
  int parent_watch_ = -1;
  alignas(8) std::array<char, 4096> buffer_{};
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // answers may arrive after the destruction of this object
};

}  // namespace ddprun
