// Exact evaluation on the test set and on what is held out of training: each rank evaluates a contiguous block, nothing is
// padded or counted twice, and sums (not means) are added up. A collective: all ranks call it with the same weights.
#pragma once

#include <c10/core/Device.h>

#include <functional>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/data/upload.hpp"
#include "trainer/metrics/evaluation.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/strategy/strategy.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// What the task measures on data.test and, where samples are held out, on data.validation, in the config's precision and
// `eval_batch_size` samples at a time, which `upload` brings to the device. Leaves the module in training mode. `before_sum` is
// called when this rank is done with its share and waits for the others. Sums stay on the device until then.
Evaluation evaluate(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                    c10::Device device, Upload& upload, const Peers& peers, const Mesh& mesh,
                    const std::function<void()>& before_sum = {});

}  // namespace ddprun::trainer
