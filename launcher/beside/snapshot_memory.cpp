// Implementation of snapshot_memory.hpp.
#include "launcher/beside/snapshot_memory.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>

namespace ddprun {
namespace {

constexpr std::int64_t kApart = std::int64_t{1} << 40;  // distance in bytes between two generations of a worker's snapshot
constexpr std::int64_t kGenerations = 2;

}  // namespace

SnapshotMemory::SnapshotMemory(int workers) : file_(workers > 0 ? ::memfd_create("ddprun-snapshots", MFD_CLOEXEC) : -1) {
  const std::int64_t size = kApart * kGenerations * workers;
  rlimit most{};  // limit of file sizes, which also applies to a memfd: exceeding it raises a signal
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < static_cast<rlim_t>(size))
    return;
  if (file_.get() < 0 || ::ftruncate(file_.get(), size) != 0) return;
  path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_.get());
}

}  // namespace ddprun
