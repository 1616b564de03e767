// Whether the run directory is still in its place. The agent (agent_shell.cpp) owns one where it holds a run directory's lock,
// and asks at the start of each round as well, since a folder on another machine can go without a word. It tells once.
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
  // `lock_fd` stays the caller's. Where the kernel does not tell, only look() finds out.
  RunDirectoryWatch(boost::asio::io_context& io, FileQueue& files, std::filesystem::path run_dir, int lock_fd,
                    std::function<void()> on_removed);
  // On the queue's thread: the answer may take its time.
  void look();

 private:
  void wait();

  void wait_for_mounts();

  boost::asio::posix::stream_descriptor events_;
  boost::asio::posix::stream_descriptor mounts_;
  FileQueue& files_;
  std::filesystem::path run_dir_;
  int lock_fd_;
  std::function<void()> on_removed_;  // empty: it was told
  std::array<char, 4096> buffer_{};
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // answers may come later
};

}  // namespace ddprun
