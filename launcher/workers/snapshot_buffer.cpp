#include "launcher/workers/snapshot_buffer.hpp"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>

namespace ddprun {
namespace {

// The distance in bytes between the two generations (copies) of a worker's snapshot.
constexpr std::int64_t kSpacing = std::int64_t{1} << 40;
constexpr std::int64_t kGenerations = 2;

}  // namespace

SnapshotBuffer::SnapshotBuffer(int workers) : file_(workers > 0 ? ::memfd_create("ddprun-snapshots", MFD_CLOEXEC) : -1) {
  const std::int64_t size = kSpacing * kGenerations * workers;
  rlimit most{};  // file size limit; it also applies to a memfd, and a write beyond it raises SIGXFSZ
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < static_cast<rlim_t>(size))
    return;
  if (file_.get() < 0 || ::ftruncate(file_.get(), size) != 0) return;
  path_ = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_.get());
}

}  // namespace ddprun
