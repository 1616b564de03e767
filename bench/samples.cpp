// Measures how many samples per second one worker can load, without training. The samples are read, augmented, batched and
// uploaded by the same loader as in a job. bench/samples_bench.py runs this program.
//
// usage: loaded_samples CONFIG SECONDS
//
// The program measures for SECONDS, after a warm-up of SECONDS / 10, and prints the samples per second.
#include <ATen/Parallel.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>

#include "common/config/parse_config.hpp"
#include "trainer/data/loader.hpp"
#include "trainer/data/upload.hpp"
#include "trainer/life/subject.hpp"

namespace ddprun::trainer {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

double samples_per_second(const TrainConfig& config, Seconds time) {
  const c10::Device device(c10::kCPU);
  const Sources data = chosen_by_config().read(config, device, {});
  const LoaderOptions options{.batch_size = config.batch_size,
                              .micro_batch_size = config.micro_batch_size,
                              .prefetch = config.data.prefetch,
                              .seed = config.seed};
  Loader loader(*data.train, options, 0, std::numeric_limits<std::int64_t>::max());
  Upload upload(*data.train, device);
  std::int64_t samples = 0;
  const auto take_until = [&](Clock::time_point end) {
    samples = 0;
    while (Clock::now() < end) {
      for (const Batch& batch : loader.next().micro_batches) samples += upload.take(batch).samples();
    }
  };
  take_until(Clock::now() + std::chrono::duration_cast<Clock::duration>(time / 10));
  const Clock::time_point begin = Clock::now();
  take_until(begin + std::chrono::duration_cast<Clock::duration>(time));
  return static_cast<double>(samples) / Seconds(Clock::now() - begin).count();
}

}  // namespace
}  // namespace ddprun::trainer

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  at::set_num_threads(1);
  const auto config = ddprun::load_config(argv[1]);
  std::printf("%f\n", ddprun::trainer::samples_per_second(config, ddprun::trainer::Seconds(std::strtod(argv[2], nullptr))));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
