// Exact evaluation on the test set and on what is held out of training: each rank evaluates a contiguous block, nothing is
// padded or counted twice, and sums (not means) are added up. A collective: all ranks call it with the same weights.
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <optional>

#include "common/config/train_config.hpp"
#include "trainer/data/source.hpp"
#include "trainer/data/upload.hpp"
#include "trainer/metrics/evaluation.hpp"
#include "trainer/parallel/peers.hpp"
#include "trainer/strategy/strategy.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// What brings the samples of each source to the device. Samples that are held out are of the training source.
struct Uploads {
  Uploads(Upload& both) : test(both), validation(both) {}  // NOLINT(google-explicit-constructor): of sources that are alike
  Uploads(Upload& of_test, Upload& of_validation) : test(of_test), validation(of_validation) {}
  Upload& test;
  Upload& validation;
};

// What the task measures on data.test and, where samples are held out, on data.validation, in the config's precision and
// `eval_batch_size` samples at a time. Leaves the module in training mode. `before_sum` is called when this rank is done with
// its share and waits for the others. Sums stay on the device until then. Throws what the task or the data threw on this rank.
Evaluation evaluate(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                    c10::Device device, const Uploads& uploads, const Peers& peers, const Mesh& mesh,
                    const std::function<void()>& before_sum = {});

// The same, but an exception on one rank is known to all ranks when it returns, so that they can save together. Without a
// result the evaluation failed on some rank; `failure` is set on that rank. Throws what the group throws for a lost peer.
struct TriedEvaluation {
  std::optional<Evaluation> result;
  std::exception_ptr failure;
};
TriedEvaluation try_evaluate(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                             c10::Device device, const Uploads& uploads, const Peers& peers, const Mesh& mesh,
                             const std::function<void()>& before_sum = {});

// Not a collective. Measures one sample of each source and drops the result: a model or a task that cannot be evaluated shows
// before the first step. Throws what that threw.
void evaluate_one_sample(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                         c10::Device device, const Uploads& uploads);

}  // namespace ddprun::trainer
