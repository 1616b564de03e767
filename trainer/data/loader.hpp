// Prepares a rank's micro-batches in threads ahead of the training loop. It selects the samples (sampler.hpp), divides them
// into micro-batches, and makes the micro-batches with a Source. Random draws have the key (seed, epoch, sample), so a batch
// does not depend on the thread or the time. The number of threads changes only the speed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/data/source.hpp"

namespace ddprun::trainer {

// One rank's share of one global batch: its samples, in micro-batches.
struct RankBatch {
  std::int64_t step = 0;         // number of the step, counted from 0 over the whole run
  std::int64_t epoch = 0;        // counted from 0
  std::int64_t position = 0;     // position of the global batch's first sample within the epoch
  std::int64_t global_size = 0;  // number of samples in the global batch, over all ranks
  double global_weight = 0;      // total weight of the global batch, over all ranks
  std::int64_t own_size = 0;     // number of samples in this share; may be 0 in a smaller last batch
  std::vector<std::int64_t> samples;
  // At least one micro-batch. A share without samples has a stand-in: one micro-batch of weight 0 with a sample of another
  // rank. Stand-ins come last.
  std::vector<Batch> micro_batches;
};

struct LoaderOptions {
  std::int64_t batch_size = 0;        // global
  std::int64_t micro_batch_size = 0;  // 0 puts the whole share into one micro-batch
  std::int64_t prefetch = 4;          // number of finished shares that the queue can hold, in addition to one per thread
  std::int64_t threads = 1;           // number of threads that make shares; with 1 thread, next() makes small shares itself
  std::uint64_t seed = 0;
  double mixup = 0;  // parameter alpha of own_part() in sampler.hpp; 0 disables mixup
  int world = 1;
  int rank = 0;
  // Gives all ranks the same number of micro-batches in each step, for a model whose passes contain collectives.
  bool equal_passes = false;
};

class Loader {
 public:
  // Makes the shares from step `first_step` of the run to the step before `last_step`. The source must outlive the loader.
  Loader(const Source& source, LoaderOptions options, std::int64_t first_step, std::int64_t last_step);
  ~Loader();  // stops the threads, even if they are blocked by a full queue
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // Returns the share of the next step; blocks until the share is ready. Throws the errors that occurred while the share was
  // made, whatever the number of threads: UsageError for bad data, SourceError for all others (source_error.hpp). Throws
  // std::logic_error if the last share was already returned.
  RankBatch next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::trainer
