// The metrics of a logged step over all ranks. A single all-reduce computes the loss and the peak memory, finds the ranks with
// a non-finite loss, and distributes the decision of rank 0 whether to save.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/data/loader.hpp"
#include "trainer/loop/workspace.hpp"

namespace ddprun::trainer {

// Throws DivergedError for a NaN or infinite loss on `rank` in the step after `finished` steps. `data` describes where the data
// contains a NaN or infinite number. It is empty if the data is finite, or if `rank` is not this rank, because the data of
// other ranks is unknown here.
[[noreturn]] void diverged(std::int64_t finished, int rank, const std::string& data);

// Returns the amount that this rank adds to the mean loss of the global batch. `losses` are the losses of its micro-batches.
// They are read in one copy at the end of the step, since each read from a GPU waits for the GPU.
double part_of_loss(const std::vector<at::Tensor>& losses, const RankBatch& share);

struct GlobalMetrics {
  double loss = 0;  // mean training loss over the global batch
  // True if rank 0 has decided that a time-based save is due. All ranks that write copies must save after the same step.
  bool save_is_due = false;
  double peak_memory = 0;          // peak memory of rank 0, in bytes
  double largest_peak_memory = 0;  // highest peak memory of any rank, in bytes
};

enum class OnNonFinite { kEndRun, kReport };

// This call is collective. `own` is the result of part_of_loss() on this rank. `requests_save_now` is true if a save is due;
// only rank 0 sets it. If a loss is NaN or infinite and `on_non_finite` is kEndRun, throws DivergedError on all ranks. The
// error names the first rank with such a loss. With kReport, returns NaN as the loss.
GlobalMetrics global_metrics(double own, bool requests_save_now, const RankBatch& share, const Workspace& work,
                             OnNonFinite on_non_finite);

}  // namespace ddprun::trainer
