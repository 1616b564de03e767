// Prepares a rank's micro-batches in threads ahead of the training loop: picks the samples (sampler.hpp), cuts them into
// micro-batches, and lets a Source make them. Random draws have the key (seed, epoch, sample). So a batch does not depend on
// the thread or the time, and the number of threads changes only the speed.
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
  std::int64_t position = 0;     // position of the global batch's first sample within the epoch
  std::int64_t global_size = 0;  // samples of the global batch, all ranks together
  double global_weight = 0;      // weight of the global batch; the micro-batches' weights are parts of it
  std::int64_t own_size = 0;     // samples of this share; may be 0 in a ragged last batch
  std::vector<std::int64_t> samples;
  // At least one. A share without samples has one micro-batch of weight 0, with a sample of another share. Such stand-ins come
  // last.
  std::vector<Batch> micro_batches;
};

struct LoaderOptions {
  std::int64_t batch_size = 0;        // global
  std::int64_t micro_batch_size = 0;  // 0: the whole share is one micro-batch
  std::int64_t prefetch = 4;          // shares that may wait; each thread may hold one more
  std::int64_t threads = 1;           // each makes a whole share; with 1, next() makes a small one itself
  std::uint64_t seed = 0;
  double mixup = 0;  // alpha of own_part() in sampler.hpp; 0: nothing is mixed
  int world = 1;
  int rank = 0;
  // Gives all ranks the same number of micro-batches in each step, for a model whose passes contain collectives.
  bool equal_passes = false;
};

class Loader {
 public:
  // Begins with step `first_step` of the run and ends before `last_step`. The source must outlive the loader.
  Loader(const Source& source, LoaderOptions options, std::int64_t first_step, std::int64_t last_step);
  ~Loader();  // stops the threads without waiting for a full queue
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns the share of the next step and blocks until it is ready. Throws the errors of making it, with any number of
  // threads: UsageError for bad data, SourceError for all others (source_error.hpp). Throws std::logic_error past last_step.
  Share next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
