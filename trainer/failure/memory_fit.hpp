// Memory fit: after an out-of-memory error the job continues with a batch that fits, and remembers its size.
//
// An allocator refuses memory in the middle of a step. A restart with the same config needs the same memory and fails again. A
// smaller batch_size would fit, but it changes the training.
//
// Only the micro-batch has to fit, the samples that go through the model at once. Gradients of micro-batches accumulate, so the
// global batch stays. The rank that ran out halves its micro-batch, writes the size to RUN_DIR/memory-fit.json and ends. The
// next process begins with that size. Example: a global batch of 128, 2 ranks, and room for 20 samples.
//
//   micro-batch 64, the whole share: refused     32: refused     16: fits, four passes for each step
//
// Halving ends by itself: from 64 samples there are at most 6 halvings to 1. So the restart policy does not charge them to the
// budget (is_free() in launcher/verdict/restart_policy.hpp). If one sample does not fit, the job ends with exit code 84. If the
// file cannot be written, the next process would fail in the same way. That restart is charged.
//
//   - A fit is a number of samples and not a divisor. So it stays right for another global batch or number of workers.
//   - An evaluation has a size of its own. Loading and saving have no batch, so nothing shrinks after an error there.
//   - Without a shared disk each node has its own file. So the ranks of each new group agree on the smallest size.
//   - The model, the kind of device, the GPU's memory and the precision are the key. A change of any makes the fit void.
//
// Cost: the steps may be slower than needed, since the result can be little more than half of what fits. The size never grows
// again: remove the file when the host has more memory. Losses that are means over samples agree to rounding. Batch norm sees
// smaller batches and dropout draws other numbers (docs/internals/decisions/parallel/split-batches.md).
//
// A second try in the same process does not work: the other ranks wait in an all-reduce that Gloo cannot cancel. Also, the
// memory of the process is fragmented (docs/internals/decisions/recovery/oom-shrinks-by-a-new-process.md). With live recovery
// the other ranks keep their state. They take the smaller size when they form the next group (trainer/life/worker.cpp). The
// failing process writes the file in trainer/life/report_failure.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/channel/message.hpp"
#include "common/config/train_config.hpp"
#include "trainer/parallel/peers.hpp"

namespace ddprun::trainer {

struct MemoryFit {
  std::int64_t micro_batch_size = 0;  // most samples in one pass of a rank in training; 0: nothing learned
  std::int64_t eval_batch_size = 0;   // most samples in one pass of a rank in an evaluation; 0: nothing learned
  bool operator==(const MemoryFit&) const = default;
};

// The file in which a run keeps its fit.
std::filesystem::path fit_file(const std::filesystem::path& run_dir);

// Key of a fit: the model and the device. `device` has its kind, a GPU's memory and the precision: "cpu", "cuda with 40 GiB in
// bf16". A larger GPU may hold what a smaller one refused.
std::string fit_key(const TrainConfig& config, const std::string& device);

// Returns an empty fit if the file is missing or damaged, or has another key.
MemoryFit read_fit(const std::filesystem::path& file, const std::string& key);
// Returns whether the file was written.
bool write_fit(const std::filesystem::path& file, const std::string& key, const MemoryFit& fit) noexcept;

// The smaller of each of the two sizes, where 0 means no limit.
MemoryFit smaller_fit(const MemoryFit& a, const MemoryFit& b);

// Reduces the batch sizes of the config to the fit.
void apply_fit(TrainConfig& config, const MemoryFit& fit);

// Collective. Reduces the batch sizes of the config to the smallest fit of any rank. Rank 0 logs the result on stderr. Throws
// what the process group throws for a lost peer.
void agree_on_fit(TrainConfig& config, const std::filesystem::path& file, const std::string& device, const Peers& peers);

// Result of shrink_after(). `text` is appended to the error message. `fit` counts only if `how` is kDone.
struct Shrinking {
  channel::Shrink how = channel::Shrink::kNothingKnown;
  MemoryFit fit;
  std::string text;
};
// The next smaller fit after an out-of-memory error in `phase`. `config` has been through apply_fit().
Shrinking shrink_after(channel::Phase phase, const TrainConfig& config, int world);

}  // namespace ddprun::trainer
