// Implementation of shared_memory.hpp. Other processes open a memfd through its owner's descriptors in /proc. The process and
// descriptor numbers may be reused later, so the name also has the inode number.
#include "trainer/data/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

namespace ddprun::trainer {
namespace {

unsigned long long inode_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<unsigned long long>(status.st_ino) : 0;
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::make(std::size_t size) {
  const int fd = ::memfd_create("ddptrain-data", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return nullptr;
  // Sealed: it can't shrink while other processes map it.
  const bool sized =
      ::ftruncate(fd, static_cast<off_t>(size)) == 0 && ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  void* const address = sized ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  if (address == MAP_FAILED) {
    ::close(fd);
    return nullptr;
  }
  return std::shared_ptr<SharedMemory>(new SharedMemory(fd, address, size));
}

SharedMemory::~SharedMemory() {
  ::munmap(address_, size_);
  ::close(fd_);
}

std::string SharedMemory::name() const {
  return std::to_string(::getpid()) + " " + std::to_string(fd_) + " " + std::to_string(inode_of(fd_));
}

int open_shared_memory(const std::string& name) {
  int pid = 0, number = 0;
  unsigned long long inode = 0;
  if (std::sscanf(name.c_str(), "%d %d %llu", &pid, &number, &inode) != 3) return -1;
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 || inode_of(fd) == inode) return fd;
  ::close(fd);
  return -1;
}

}  // namespace ddprun::trainer
