// Prepares a rank's micro-batches ahead of the training loop in threads of its own: which samples (sampler.hpp), cut into
// micro-batches, made by a Source. Draws are keyed by (seed, epoch, sample), so a batch is the same whoever makes it and
// whenever, and the number of threads changes nothing but the time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// One rank's share of one global batch.
struct Share {
  std::int64_t step = 0;         // counted from 0 over the whole run
  std::int64_t epoch = 0;        // counted from 0
  std::int64_t position = 0;     // of the global batch's first sample within the epoch
  std::int64_t global_size = 0;  // samples of the global batch, all ranks together
  double global_weight = 0;      // of the global batch; its micro-batches' weights are parts of this
  std::int64_t own_size = 0;     // samples of this share; 0 is possible in a ragged last batch
  std::vector<std::int64_t> samples;
  // At least one: a share of 0 samples has one micro-batch with a sample of another share, of weight 0. Such stand-ins are the
  // last.
  std::vector<Batch> micro_batches;
};

struct LoaderOptions {
  std::int64_t batch_size = 0;        // global
  std::int64_t micro_batch_size = 0;  // 0: whole share in one
  std::int64_t prefetch = 4;          // shares that may wait; each thread may have one more
  std::int64_t threads = 1;           // each makes a whole share; 1: a small one is made by who asks for it
  std::uint64_t seed = 0;
  double mixup = 0;  // alpha of own_part() in sampler.hpp; 0: nothing is mixed
  int world = 1;
  int rank = 0;
  // In each step all ranks have as many micro-batches as the one with most: for a model whose passes exchange something.
  bool equal_passes = false;
};

class Loader {
 public:
  // Begins with step `first_step` of the run and ends before `last_step`. The source must outlive the loader.
  Loader(const Source& source, LoaderOptions options, std::int64_t first_step, std::int64_t last_step);
  ~Loader();  // stops the threads without waiting for a full queue
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The next step's share. Blocks until it is ready; throws what making it threw, however many threads there are: UsageError
  // for bad data, SourceError for all else (source_error.hpp). Throws std::logic_error past last_step.
  Share next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
