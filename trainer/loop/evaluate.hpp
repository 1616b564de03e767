// Exact evaluation on the test set and on the held-out training samples, divided among the ranks. Each rank evaluates a
// contiguous block. Blocks are not padded to equal length, so no sample is counted twice. The ranks add up sums and weights,
// not means, since blocks differ in size. evaluate() is a collective: all ranks must call it with the same weights.
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

// The objects that copy test samples and held-out samples to the device. The held-out samples come from the training source,
// which may need a different object.
struct Uploads {
  Uploads(Upload& both) : test(both), validation(both) {}  // NOLINT(google-explicit-constructor): if one Upload fits both
  Uploads(Upload& of_test, Upload& of_validation) : test(of_test), validation(of_validation) {}
  Upload& test;
  Upload& validation;
};

// The arguments of evaluate(): a model, the data to evaluate it on, and the settings.
struct Evaluated {
  const Task& task;
  torch::nn::Module& module;
  const Sources& data;
  const TrainConfig& config;
  c10::Device device;
  Uploads uploads;
};

// Returns the task's metrics on data.test and, if samples are held out, on data.validation. Uses the config's precision and
// `eval_batch_size` samples per batch. Leaves the module in training mode. Calls `before_sum` when this rank has finished its
// block, before the collective. Throws the error of the task or the data on the rank where it occurred, and InternalError on
// the other ranks.
Evaluation evaluate(const Evaluated& of, const Peers& peers, const Mesh& mesh, const std::function<void()>& before_sum = {});

// The result of try_evaluate(). This function does not throw an error of the task or the data, so that all ranks can save the
// state together. If any rank has such an error, `result` is nullopt on all ranks, and `failure` is set on the ranks with the
// error. try_evaluate() throws the process group's error if a rank is lost.
struct EvaluationAttempt {
  std::optional<Evaluation> result;
  std::exception_ptr failure;
};
EvaluationAttempt try_evaluate(const Evaluated& of, const Peers& peers, const Mesh& mesh,
                               const std::function<void()>& before_sum = {});

// This call is not collective. Evaluates one sample of each source and discards the result. train() calls this before the first
// step, so that a model or task that cannot be evaluated fails early. Throws the error of the task or the data.
void evaluate_one_sample(const Evaluated& of);

}  // namespace ddprun::trainer
