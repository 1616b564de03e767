// The two futex calls that ranks need. The words lie in memory that several processes map, so the calls are not private.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace ddprun::trainer::collectives {

// Sleeps for at most `limit` if the word still has the value `seen`. May return early.
inline void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t seen, std::chrono::nanoseconds limit) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(limit);
  const timespec timeout{.tv_sec = static_cast<time_t>(seconds.count()),
                         .tv_nsec = static_cast<long>((limit - seconds).count())};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

inline void futex_wake_all(std::atomic<std::uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ddprun::trainer::collectives
