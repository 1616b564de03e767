// Implementation of shared_memory.hpp. Other processes open a memfd through the owner's descriptors in /proc. The numbers of
// the process and of the descriptor may be reused later, so the name also contains the inode number.
#include "trainer/data/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddprun::trainer {
namespace {

unsigned long long inode_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<unsigned long long>(status.st_ino) : 0;
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::make(std::size_t size) {
  Descriptor memory(::memfd_create("ddptrain-data", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (memory.get() < 0) return nullptr;
  // The memory is sealed, so that it can't shrink while other processes map it.
  const bool sized = ::ftruncate(memory.get(), static_cast<off_t>(size)) == 0 &&
                     ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  void* const address = sized ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0) : MAP_FAILED;
  if (address == MAP_FAILED) return nullptr;
  return std::shared_ptr<SharedMemory>(new SharedMemory(std::move(memory), address, size));
}

SharedMemory::~SharedMemory() {
  ::munmap(address_, size_);
}

std::string SharedMemory::name() const {
  return std::to_string(::getpid()) + " " + std::to_string(opened_.get()) + " " + std::to_string(inode_of(opened_.get()));
}

Descriptor open_shared_memory(const std::string& name) {
  int pid = 0, number = 0;
  unsigned long long inode = 0;
  if (std::sscanf(name.c_str(), "%d %d %llu", &pid, &number, &inode) != 3) return Descriptor();
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(number);
  Descriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  return opened.get() >= 0 && inode_of(opened.get()) == inode ? std::move(opened) : Descriptor();
}

}  // namespace ddprun::trainer
