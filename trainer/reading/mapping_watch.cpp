#include "trainer/reading/mapping_watch.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <list>
#include <mutex>
#include <string>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

// The data of a mapping that the signal handler needs. If `begin` is 0, the slot is unused. `begin` is written last and cleared
// first, so that the handler never uses an incomplete slot.
struct Slot {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
  std::atomic<bool> lost{false};
};
constexpr std::size_t kSlots = 4096;
std::array<Slot, kSlots> slots;
std::atomic<std::size_t> slots_used{0};  // the handler reads only the slots below this index
std::uintptr_t page_size = 4096;
struct sigaction before {};

// The handler for SIGBUS. It uses only async-signal-safe calls, and preserves errno for the interrupted code.
void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  const std::size_t used = slots_used.load();
  for (std::size_t i = 0; i < used; ++i) {
    const std::uintptr_t begin = slots[i].begin.load();
    const std::uintptr_t end = slots[i].end.load();
    if (begin == 0 || address < begin || address >= end) continue;
    slots[i].lost.store(true);
    // Replaces all pages from the failed address to the end of the mapping in one call. With one call per page, the process
    // could reach the kernel's limit on the number of mappings.
    const std::uintptr_t page = address / page_size * page_size;
    void* const zeros =
        ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) break;
    errno = saved;
    return;
  }
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(signal, info, context);
  } else {
    ::sigaction(SIGBUS, &before, nullptr);    // the failed access runs again and raises SIGBUS, now for the previous handler
    if (info->si_code <= 0) ::raise(signal);  // if a process has sent the signal, there is no failed access to raise it again
  }
  errno = saved;
}

void install_handler() {
  page_size = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &before);
}

constexpr std::size_t kSamples = 64;
constexpr std::size_t kSampleBytes = 4096;

std::uint64_t mixed(std::uint64_t hash, const char* bytes, std::size_t count) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; i += sizeof word) {
    word = 0;
    std::memcpy(&word, bytes + i, std::min(sizeof word, count - i));
    hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 29U;
  }
  return hash;
}

// Returns a hash of 64 evenly spaced parts of the file. A small file is hashed as a whole.
std::uint64_t sample_of(const char* bytes, std::size_t size) {
  if (size <= kSamples * kSampleBytes) return mixed(size, bytes, size);
  std::uint64_t hash = size;
  const std::size_t last = size - kSampleBytes;
  for (std::size_t i = 0; i < kSamples; ++i) hash = mixed(hash, bytes + last / (kSamples - 1) * i, kSampleBytes);
  return mixed(hash, bytes + last, kSampleBytes);
}

bool same_time(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

[[noreturn]] void changed(const std::filesystem::path& file, const std::string& how) {
  throw UsageError("'" + file.string() + "' " + how +
                   " while this job was using it, so the run can no longer read the same samples. Restore the file, then start "
                   "the job again: the job continues from its newest checkpoint");
}

}  // namespace

struct WatchedMapping::Impl {
  const char* address;
  std::size_t size;
  std::filesystem::path file;
  Slot* slot = nullptr;
  int fd = -1;
  timespec modified{};
  std::uint64_t sample = 0;

  void require_same();
};

namespace {

std::mutex registered_mutex;
std::list<WatchedMapping*> registered;

}  // namespace

WatchedMapping::WatchedMapping(const void* address, std::size_t size, int fd, const std::filesystem::path& file)
    : impl_(new Impl{.address = static_cast<const char*>(address), .size = size, .file = file}) {
  static std::once_flag installed;
  std::call_once(installed, install_handler);
  {
    const std::lock_guard lock(registered_mutex);
    const auto free = std::find_if(slots.begin(), slots.end(), [](const Slot& slot) { return slot.begin.load() == 0; });
    if (free != slots.end()) {
      const auto begin = reinterpret_cast<std::uintptr_t>(address);
      free->lost = false;
      free->end = (begin + size + page_size - 1) / page_size * page_size;
      free->begin = begin;
      impl_->slot = &*free;
      slots_used = std::max(slots_used.load(), static_cast<std::size_t>(free - slots.begin()) + 1);
    }
  }
  struct stat status {};
  impl_->fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (impl_->fd >= 0 && impl_->slot != nullptr && ::fstat(impl_->fd, &status) == 0) {
    impl_->modified = status.st_mtim;
    impl_->sample = sample_of(impl_->address, size);
  }
  const std::lock_guard lock(registered_mutex);
  registered.push_back(this);
}

WatchedMapping::~WatchedMapping() {
  const std::lock_guard lock(registered_mutex);
  registered.remove(this);
  if (impl_->slot != nullptr) impl_->slot->begin = 0;
  if (impl_->fd >= 0) ::close(impl_->fd);
}

void WatchedMapping::Impl::require_same() {
  struct stat status {};
  if (fd >= 0 && slot != nullptr) {
    if (::fstat(fd, &status) != 0) changed(file, std::string("became unreadable (") + std::strerror(errno) + ")");
    if (static_cast<std::uint64_t>(status.st_size) < size) {
      changed(file, "was truncated from " + std::to_string(size) + " to " + std::to_string(status.st_size) + " bytes");
    }
  }
  if (slot != nullptr && slot->lost) changed(file, "became unreadable (an I/O error, or it was truncated)");
  if (fd < 0 || slot == nullptr || same_time(status.st_mtim, modified)) return;
  if (sample_of(address, size) != sample) changed(file, "was overwritten");
  modified = status.st_mtim;
}

void require_mapped_files() {
  const std::lock_guard lock(registered_mutex);
  for (WatchedMapping* const mapping : registered) mapping->impl_->require_same();
}

}  // namespace ddprun::trainer
