// Traces chosen steps with PyTorch's profiler (Kineto): the operators and GPU kernels over time, in Chrome's trace format.
// Perfetto (ui.perfetto.dev) and chrome://tracing display the trace. Each traced rank writes its own file, such as
// traces/step-000000100-rank-0.json.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// Call this at program start, before other threads are started. On a machine without a GPU, this call prevents a warning of
// PyTorch's profiler about the missing GPU.
void prepare_traces();

// Only the training thread may use this class. If a trace fails, the class passes the error message to `on_trouble` instead of
// throwing, so training continues.
class StepTrace {
 public:
  // The object traces nothing if `rank` is not in log.trace_ranks, or if log.trace_step is 0.
  StepTrace(const LogConfig& config, int rank, c10::Device device, std::filesystem::path folder,
            std::function<void(const std::string&)> on_trouble);
  // Drops a trace that is not written yet. This happens if the loss of another worker interrupted a traced step.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Call before_step() and after_step() around each step. `finished` is the number of finished steps at the time of the call.
  void before_step(std::int64_t finished);
  void after_step(std::int64_t finished);
  // Call this at the end of training. Writes a trace that is still in progress. Warns through `on_trouble` if training ended
  // before log.trace_step.
  void end(std::int64_t finished);

 private:
  void write(std::int64_t finished);

  std::int64_t first_ = 0;  // first step to trace, counted from 1; 0 if no step is traced
  std::int64_t last_ = 0;
  std::int64_t started_at_ = 0;  // first step of the trace in progress; 0 if no trace is in progress
  int rank_;
  bool on_gpu_;
  std::filesystem::path folder_;
  std::function<void(const std::string&)> on_trouble_;
};

}  // namespace ddprun::trainer
