// Traces chosen steps with PyTorch's profiler (Kineto): the operators and GPU kernels over time, in Chrome's format. Perfetto
// (ui.perfetto.dev) and chrome://tracing show it. Each traced rank writes its own file, traces/step-000000100-rank-0.json.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Call at program start, before other threads. Stops PyTorch's profiler from warning that a machine without a GPU has none.
void prepare_traces();

// For the training thread only. If a trace cannot be written, `on_trouble` gets the message. Nothing is thrown, and training
// continues.
class StepTrace {
 public:
  // Does nothing if `rank` is not in log.trace_ranks, or if log.trace_step is 0.
  StepTrace(const LogConfig& config, int rank, c10::Device device, std::filesystem::path folder,
            std::function<void(const std::string&)> on_trouble);
  // Drops an unfinished trace: the peers were lost during one of its steps.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Call around each step. `finished`: number of finished steps before the step, and after it.
  void before_step(std::int64_t finished);
  void after_step(std::int64_t finished);
  // Call at the end of training. Writes an unfinished trace, and reports if no step was traced.
  void end(std::int64_t finished);

 private:
  void write(std::int64_t finished);

  std::int64_t first_ = 0;  // first step to trace, counted from 1; 0: none
  std::int64_t last_ = 0;
  std::int64_t begun_at_ = 0;  // 0: no trace is in progress
  int rank_;
  bool on_gpu_;
  std::filesystem::path folder_;
  std::function<void(const std::string&)> on_trouble_;
};

}  // namespace ddprun::trainer
