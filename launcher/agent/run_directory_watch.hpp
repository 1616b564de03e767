// Whether the run directory is still in its place. The agent (agent_shell.cpp) owns one if it holds the directory's lock. It
// also asks at the start of each round, since the kernel does not report a removal by another machine. Reports once.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "common/system/file_queue.hpp"

namespace ddprun {

class RunDirectoryWatch {
 public:
  // The caller keeps `lock_fd`. Where the kernel reports nothing, only look() notices.
  RunDirectoryWatch(boost::asio::io_context& io, FileQueue& files, std::filesystem::path run_dir, int lock_fd,
                    std::function<void()> on_removed);
  // Looks on the queue's thread, since the answer may take time.
  void look();

 private:
  void wait();

  void wait_for_mounts();

  boost::asio::posix::stream_descriptor events_;
  boost::asio::posix::stream_descriptor mounts_;
  FileQueue& files_;
  std::filesystem::path run_dir_;
  int lock_fd_;
  std::function<void()> on_removed_;  // empty: it was reported
  std::array<char, 4096> buffer_{};
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // answers may come later
};

}  // namespace ddprun
