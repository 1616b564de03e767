// Measures the collectives of trainer/collectives between processes on this machine.
//
// usage: collectives_bench RANKS [LARGEST_BYTES]
//
// The program prints, for each collective and size, the median time of a call and two rates. nccl-tests defines these rates:
// algbw is bytes per time, and busbw is the bytes that each rank must exchange per time. For all-gather and reduce-scatter, the
// size is the sum of all parts. The environment variables SPIN_US and SLOT_KIB replace the spin time and the size of a slot. In
// rows marked "in place", the buffers are in the shared-memory segment.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "trainer/collectives/collectives.hpp"
#include "trainer/collectives/shared_memory/segment.hpp"
#include "trainer/collectives/shared_memory/shared_transport.hpp"

namespace ddprun::trainer::collectives {
namespace {

using Clock = std::chrono::steady_clock;
using Call = std::function<void(SharedTransport&, std::byte* data, std::byte* out, std::uint64_t elements)>;

struct MeasuredCall {
  const char* name;
  double bus_factor;  // busbw divided by algbw, for W ranks; see the file PERFORMANCE.md of nccl-tests
  Call call;
};

std::vector<MeasuredCall> measured_calls(int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  const auto count = static_cast<std::uint64_t>(ranks);
  return {
      {"all-reduce", 2 * others,
       [](SharedTransport& transport, std::byte* data, std::byte*, std::uint64_t elements) {
         all_reduce(transport, ElementType::kF32, Reduction::kSum, data, elements);
       }},
      {"reduce-scatter", others,
       [count](SharedTransport& transport, std::byte* data, std::byte* out, std::uint64_t elements) {
         reduce_scatter(transport, ElementType::kF32, Reduction::kSum, data, out, elements / count);
       }},
      {"all-gather", others,
       [count](SharedTransport& transport, std::byte* data, std::byte* out, std::uint64_t elements) {
         all_gather(transport, ElementType::kF32, data, out, elements / count);
       }},
      {"broadcast", 1,
       [](SharedTransport& transport, std::byte* data, std::byte*, std::uint64_t elements) {
         broadcast(transport, ElementType::kF32, data, elements, 0);
       }},
  };
}

double median_seconds(SharedTransport& transport, const std::function<void()>& call, std::uint64_t bytes) {
  const int repeats = bytes > (4u << 20) ? 21 : bytes > (256u << 10) ? 101 : 1001;
  for (int warm_up = 0; warm_up < 3; ++warm_up) call();
  std::vector<double> times;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    barrier(transport);
    const Clock::time_point start = Clock::now();
    call();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + repeats / 2, times.end());
  return times[static_cast<std::size_t>(repeats / 2)];
}

void measure_all(SharedTransport& transport, std::uint64_t largest) {
  std::vector<float> memory(largest / 4, 1.0f), out(largest / 4, 0.0f);
  std::byte* const exposed = transport.exposed_at(transport.rank(), 0, largest);
  std::fill_n(reinterpret_cast<float*>(exposed), largest / 4, 1.0f);
  if (transport.rank() == 0)
    std::printf("%-15s %-9s %10s %12s %12s %12s\n", "collective", "", "bytes", "us", "algbw GB/s", "busbw GB/s");
  for (const MeasuredCall& each : measured_calls(transport.ranks())) {
    for (const bool in_place : {true, false}) {
      for (const std::uint64_t size : {4ull << 10, 64ull << 10, 1ull << 20, 2'700'000ull, 25ull << 20}) {
        if (size > largest) continue;
        std::byte* const data = in_place ? exposed : reinterpret_cast<std::byte*>(memory.data());
        const double seconds = median_seconds(
            transport, [&] { each.call(transport, data, reinterpret_cast<std::byte*>(out.data()), size / 4); }, size);
        if (transport.rank() != 0) continue;
        const double rate = static_cast<double>(size) / seconds / 1e9;
        std::printf("%-15s %-9s %10llu %12.1f %12.2f %12.2f\n", each.name, in_place ? "in place" : "copied",
                    static_cast<unsigned long long>(size), seconds * 1e6, rate, rate * each.bus_factor);
        std::fflush(stdout);
      }
    }
  }
}

int run_rank(const std::shared_ptr<const Segment>& segment, int rank, std::uint64_t largest) try {
  WaitSettings waits = waits_for(segment->ranks());
  if (const char* const spin = std::getenv("SPIN_US")) waits.spin = std::chrono::microseconds(std::atoi(spin));
  auto attached = SharedTransport::attach(segment, rank, waits);
  measure_all(*std::get<std::unique_ptr<SharedTransport>>(attached), largest);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  return 1;
}

int run_all(int ranks, std::uint64_t largest) {
  SegmentSizes sizes = sizes_for(ranks, largest);
  if (const char* const kib = std::getenv("SLOT_KIB")) sizes.slot_bytes = std::strtoull(kib, nullptr, 10) << 10;
  auto created = Segment::create(sizes);
  if (const auto* const error = std::get_if<SegmentError>(&created)) {
    std::fprintf(stderr, "%s\n", error->message.c_str());
    return 1;
  }
  const auto segment = std::make_shared<const Segment>(std::move(std::get<Segment>(created)));
  for (int rank = 1; rank < ranks; ++rank) {
    if (::fork() == 0) ::_exit(run_rank(segment, rank, largest));
  }
  int result = run_rank(segment, 0, largest);
  for (int rank = 1; rank < ranks; ++rank) {
    int status = 0;
    ::wait(&status);
    if (status != 0) result = 1;
  }
  return result;
}

}  // namespace
}  // namespace ddprun::trainer::collectives

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  if (ranks < 1 || argc > 3) {
    std::fprintf(stderr, "usage: collectives_bench RANKS [LARGEST_BYTES]\n");
    return 2;
  }
  const auto largest = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 25ull << 20;
  return ddprun::trainer::collectives::run_all(ranks, largest);
}
