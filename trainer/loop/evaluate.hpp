// Exact evaluation on the test set: each rank evaluates a contiguous block, nothing is padded or counted twice, and sums (not
// means) are added up. A collective: all ranks call it with the same weights.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>

#include "trainer/data/dataset.hpp"
#include "trainer/metrics/evaluation.hpp"
#include "trainer/models/model.hpp"
#include "trainer/parallel/peers.hpp"

namespace ddprun::trainer {

// Leaves the model in training mode. `before_sum` is called when this rank is done with its share and waits for the others.
Evaluation evaluate(Model& model, const Dataset& test, Normalization normalization, std::int64_t batch_size, c10::Device device,
                    const Peers& peers, const std::function<void()>& before_sum = {});

}  // namespace ddprun::trainer
