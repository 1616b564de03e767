// Exact evaluation on the test set and on the held-out training samples. Each rank evaluates a contiguous block. No sample is
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

// Move the samples of each source to the device. Held-out samples come from the training source.
struct Uploads {
  Uploads(Upload& both) : test(both), validation(both) {}  // NOLINT(google-explicit-constructor): both sources finish alike
  Uploads(Upload& of_test, Upload& of_validation) : test(of_test), validation(of_validation) {}
  Upload& test;
  Upload& validation;
};

// Returns the task's metrics on data.test and, if samples are held out, on data.validation. Uses the config's precision and
// `eval_batch_size` samples per batch. Leaves the module in training mode. Calls `before_sum` when this rank has finished its
// block and waits for the others. Sums stay on the device until then. Throws the error of the task or the data on this rank.
Evaluation evaluate(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                    c10::Device device, const Uploads& uploads, const Peers& peers, const Mesh& mesh,
                    const std::function<void()>& before_sum = {});

// The same, but all ranks learn of an exception on one rank, so that they can save together. If there is no result, the
// evaluation failed on some rank; `failure` is set on that rank. Throws the group's error for a lost peer.
struct TriedEvaluation {
  std::optional<Evaluation> result;
  std::exception_ptr failure;
};
TriedEvaluation try_evaluate(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                             c10::Device device, const Uploads& uploads, const Peers& peers, const Mesh& mesh,
                             const std::function<void()>& before_sum = {});

// Not a collective. Measures one sample of each source and drops the result. A model or task that cannot be evaluated so fails
// before the first step. Throws the error of the task or the data.
void evaluate_one_sample(const Task& task, torch::nn::Module& module, const Sources& data, const TrainConfig& config,
                         c10::Device device, const Uploads& uploads);

}  // namespace ddprun::trainer
