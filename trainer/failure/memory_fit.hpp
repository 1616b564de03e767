// Memory fit: after an out-of-memory error the job continues with a smaller batch, and records its size.
//
// An allocation fails in the middle of a step. A restart with the same config needs the same memory and fails again. A smaller
// batch_size would fit, but it changes the training.
//
// Only the micro-batch must fit into memory: the samples of one forward pass. Gradients of micro-batches accumulate, so the
// global batch size stays the same. The rank that ran out of memory halves its micro-batch, writes the size to
// RUN_DIR/memory-fit.json and exits. The next process starts with that size. Example: a global batch of 128, 2 ranks, and
// memory for 20 samples.
//
//   micro-batch 64, all samples of a rank: out of memory     32: out of memory     16: fits, four passes per step
//
// The number of halvings is limited: 64 samples can be halved at most 6 times. So these restarts do not count against the
// restart limit (is_free() in launcher/restart_policy/restart_policy.hpp). If one sample does not fit, the job ends with exit
// code 84. If the file cannot be written, the next process would fail in the same way, so that restart counts.
//
//   - The file contains a number of samples and not a divisor. So it remains valid with a different global batch or number of
//     workers.
//   - An evaluation has a separate size. Loading and saving have no batch, so an error in them reduces no size.
//   - If the nodes share no disk, each node has its own file. So the ranks of each new process group agree on the smallest
//     size.
//   - The file also contains a key: the model, the kind of device, the GPU's memory and the precision. If one of these
//     changes, the file is ignored.
//
// Cost: the steps may be slower than needed, since the size can be little more than half of the largest size that fits. The
// size never grows again, so users must remove the file when the host has more memory. A training loss that is a mean over
// samples is the same up to rounding. Batch norm uses statistics of smaller batches, and dropout uses different random numbers
// (docs/internals/decisions/parallel/split-batches.md).
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
  std::int64_t micro_batch_size = 0;  // maximum number of samples in one training pass of a rank; 0 if no limit is known
  std::int64_t eval_batch_size = 0;   // maximum number of samples in one evaluation pass of a rank; 0 if no limit is known
  bool operator==(const MemoryFit&) const = default;
};

// Returns the path of the file in which a run stores its memory fit.
std::filesystem::path fit_file(const std::filesystem::path& run_dir);

// Returns the key of a fit: the model and the device. `device` contains the kind of device, a GPU's memory and the precision:
// "cpu", "cuda with 40 GiB in bf16". The GPU's memory is included, because a larger GPU may fit larger batches.
std::string fit_key(const TrainConfig& config, const std::string& device);

// Returns an empty fit if the file is missing or damaged, or has a different key.
MemoryFit read_fit(const std::filesystem::path& file, const std::string& key);
// Returns whether the file was written.
bool write_fit(const std::filesystem::path& file, const std::string& key, const MemoryFit& fit) noexcept;

// Returns the smaller micro-batch size and the smaller evaluation batch size of `a` and `b`. A size of 0 means no limit.
MemoryFit smaller_fit(const MemoryFit& a, const MemoryFit& b);

// Reduces the micro-batch and evaluation batch sizes of the config to the sizes in `fit`, if they are larger.
void apply_fit(TrainConfig& config, const MemoryFit& fit);

// All ranks must call this. Reduces the batch sizes of the config to the smallest fit of any rank. Rank 0 logs the result on
// stderr. Throws an exception of the process group if a worker is lost.
void agree_on_fit(TrainConfig& config, const std::filesystem::path& file, const std::string& device, const Peers& peers);

// The result of shrink_after(). `text` is appended to the error message. `fit` is valid only if `how` is kDone.
struct Shrinking {
  channel::Shrink how = channel::Shrink::kNothingKnown;
  MemoryFit fit;
  std::string text;
};
// After an out-of-memory error in `phase`, returns half of the batch size that was used in this phase. `config` must contain
// the sizes that were in use, after apply_fit().
Shrinking shrink_after(channel::Phase phase, const TrainConfig& config, int world);

}  // namespace ddprun::trainer
