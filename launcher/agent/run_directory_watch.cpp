// Implementation of run_directory_watch.hpp. One inotify descriptor watches two directories. In the run directory it watches
// for the removal of any entry: the kernel reports the removal of the directory itself only when no process uses it, but the
// workers use it. In the parent directory it watches for the removal of the run directory. The directory can be created again
// only after that.
#include "launcher/agent/run_directory_watch.hpp"

#include <fcntl.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstring>
#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>

#include "common/run_directory/run_lock.hpp"

namespace ddprun {

RunDirectoryWatch::WatchedDirectory::WatchedDirectory(std::filesystem::path path, std::string text, int fd)
    : run_dir(std::move(path)), config(std::move(text)), directory(identity_of_directory(run_dir)), lock_fd(fd) {}

RunDirectoryWatch::WatchedDirectory::Changes RunDirectoryWatch::WatchedDirectory::probe() {
  if (run_lock_is_in_place(lock_fd, run_dir)) return {};
  const int lock = remake_moved_run(run_dir, directory, lock_fd, config);
  if (lock < 0) return {.removed = true};
  own_lock = Descriptor(lock);
  lock_fd = lock;
  directory = identity_of_directory(run_dir);
  return {.removed = true, .remade = true};
}

RunDirectoryWatch::RunDirectoryWatch(boost::asio::io_context& io, FileQueue& files, std::filesystem::path run_dir, int lock_fd,
                                     std::string config, std::function<void()> on_removed)
    : events_(io),
      mounts_(io),
      files_(files),
      run_dir_(std::move(run_dir)),
      watched_(std::make_shared<WatchedDirectory>(run_dir_, std::move(config), lock_fd)),
      on_removed_(std::move(on_removed)) {
  wait_for_mounts();
  const int fd = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  if (fd < 0) return;
  events_.assign(fd);
  watch_directory();
  wait();
}

void RunDirectoryWatch::watch_directory() {
  if (!events_.is_open()) return;
  ::inotify_add_watch(events_.native_handle(), run_dir_.c_str(), IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF);
  parent_watch_ = ::inotify_add_watch(events_.native_handle(), run_dir_.parent_path().c_str(), IN_DELETE | IN_MOVED_FROM);
}

// Returns true if an event concerns the run directory. The parent directory may contain many other entries, so events with
// other names are ignored.
bool RunDirectoryWatch::concerns_directory(std::size_t bytes) const {
  const std::string name = run_dir_.filename().string();
  for (std::size_t at = 0; at + sizeof(inotify_event) <= bytes;) {
    inotify_event event{};
    std::memcpy(&event, buffer_.data() + at, sizeof event);
    const char* const text = buffer_.data() + at + sizeof event;
    if (event.wd != parent_watch_ || (event.len > 0 && name == std::string_view(text, ::strnlen(text, event.len)))) return true;
    at += sizeof event + event.len;
  }
  return false;
}

void RunDirectoryWatch::wait() {
  events_.async_read_some(boost::asio::buffer(buffer_), [this](const boost::system::error_code& error, std::size_t bytes) {
    if (error) return;
    if (concerns_directory(bytes)) probe();
    wait();
  });
}

// inotify does not report a lazy unmount (umount -l) while a process has a file open in the file system. poll() on
// /proc/self/mounts returns POLLERR when a mount changes (proc(5)). The content of the file is not needed.
void RunDirectoryWatch::wait_for_mounts() {
  if (!mounts_.is_open()) {
    const int fd = ::open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    mounts_.assign(fd);
  }
  mounts_.async_wait(boost::asio::posix::descriptor_base::wait_error, [this](const boost::system::error_code& error) {
    if (error) return;
    probe();
    wait_for_mounts();
  });
}

void RunDirectoryWatch::probe() {
  const auto changes = std::make_shared<WatchedDirectory::Changes>();
  files_.add([changes, watched = watched_] { *changes = watched->probe(); },
             [this, changes, alive = std::weak_ptr<int>(alive_)] {
               if (alive.expired()) return;
               if (changes->remade) watch_directory();
               if (changes->removed && on_removed_) std::exchange(on_removed_, nullptr)();
             });
}

}  // namespace ddprun
