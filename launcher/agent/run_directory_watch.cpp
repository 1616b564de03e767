// Implementation of run_directory_watch.hpp. What is watched is the removal of anything in the directory: of a directory itself
// the kernel tells only when nobody is in it any more, and a job's workers are. Nothing is removed there in a job's usual
// course.
#include "launcher/agent/run_directory_watch.hpp"

#include <fcntl.h>
#include <sys/inotify.h>

#include <utility>

#include <boost/asio/buffer.hpp>

#include "common/run_directory/run_lock.hpp"

namespace ddprun {

RunDirectoryWatch::RunDirectoryWatch(boost::asio::io_context& io, FileQueue& files, std::filesystem::path run_dir, int lock_fd,
                                     std::function<void()> on_removed)
    : events_(io),
      mounts_(io),
      files_(files),
      run_dir_(std::move(run_dir)),
      lock_fd_(lock_fd),
      on_removed_(std::move(on_removed)) {
  wait_for_mounts();
  const int fd = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) return;
  events_.assign(fd);
  ::inotify_add_watch(fd, run_dir_.c_str(), IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF);
  wait();
}

void RunDirectoryWatch::wait() {
  events_.async_read_some(boost::asio::buffer(buffer_), [this](const boost::system::error_code& error, std::size_t) {
    if (error) return;
    look();
    if (on_removed_) wait();
  });
}

// Of a lazy unmount (umount -l) inotify says nothing while anybody has a file open there. The list of mounts tells of a change
// as an error that is ready (proc(5)); it need not be read.
void RunDirectoryWatch::wait_for_mounts() {
  if (!mounts_.is_open()) {
    const int fd = ::open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    mounts_.assign(fd);
  }
  mounts_.async_wait(boost::asio::posix::descriptor_base::wait_error, [this](const boost::system::error_code& error) {
    if (error) return;
    look();
    if (on_removed_) wait_for_mounts();
  });
}

void RunDirectoryWatch::look() {
  if (!on_removed_) return;
  const auto in_place = std::make_shared<bool>(true);
  files_.add([in_place, fd = lock_fd_, folder = run_dir_] { *in_place = run_lock_is_in_place(fd, folder); },
             [this, in_place, alive = std::weak_ptr<int>(alive_)] {
               if (!alive.expired() && on_removed_ && !*in_place) std::exchange(on_removed_, nullptr)();
             });
}

}  // namespace ddprun
