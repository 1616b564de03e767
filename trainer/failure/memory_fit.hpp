// What fits into memory, learned from running out of it: the next process takes half the micro-batch (or half the evaluation
// batch), with the same global batch, and what was learned stays in the run directory until model or device change. Each group
// agrees on it when it begins (trainer/life/worker.cpp); a process that ran out writes it before it ends
// (trainer/life/report_failure.cpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "common/channel/message.hpp"
#include "common/config/train_config.hpp"
#include "trainer/parallel/peers.hpp"

namespace ddprun::trainer {

struct MemoryFit {
  std::int64_t micro_batch_size = 0;  // most samples of one rank at once; 0: nothing learned
  std::int64_t eval_batch_size = 0;   // likewise
  bool operator==(const MemoryFit&) const = default;
};

// Where a run keeps it.
std::filesystem::path fit_file(const std::filesystem::path& run_dir);

// What the fit depends on: the model, and the kind of device with its memory, such as "cpu" or "cuda with 40 GiB": what was
// too much for that one fits a larger one.
std::string fit_key(const TrainConfig& config, const std::string& device);

// Nothing learned when there is no file, or when it is about something else or damaged.
MemoryFit read_fit(const std::filesystem::path& file, const std::string& key);
// Whether it could be written. Never throws.
bool write_fit(const std::filesystem::path& file, const std::string& key, const MemoryFit& fit) noexcept;

// What fits on both.
MemoryFit smaller_fit(const MemoryFit& a, const MemoryFit& b);

// The config with at most what fits.
void apply_fit(TrainConfig& config, const MemoryFit& fit);

// Collective. The config with at most what fits on every rank: without a shared disk each node knows what its own ranks have
// learned, and all go by the smallest. Rank 0 says it on stderr. Throws what the process group throws for a lost peer.
void agree_on_fit(TrainConfig& config, const std::filesystem::path& file, const std::string& device, const Peers& peers);

// After running out of memory in that phase with that config, which has been through apply_fit. `text` completes the message.
struct Shrinking {
  channel::Shrink how = channel::Shrink::kNothingKnown;
  MemoryFit fit;
  std::string text;
};
Shrinking shrink_after(channel::Phase phase, const TrainConfig& config, int world);

}  // namespace ddprun::trainer
