// A trace of chosen steps: which operators and GPU kernels ran when, in Chrome's format, by PyTorch's profiler (Kineto). For
// Perfetto (ui.perfetto.dev) and chrome://tracing. One file for each rank that is traced, traces/step-000000100-rank-0.json.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "common/config/train_config.hpp"

namespace ddprun::trainer {

// At the program's start, before other threads: PyTorch's profiler is not to complain that a machine without a GPU has none.
void prepare_traces();

// The training thread only. A trace that can't be written is told to `on_trouble`; nothing is thrown, and training continues.
class StepTrace {
 public:
  // `rank` outside log.trace_ranks, or log.trace_step of 0: does nothing.
  StepTrace(const LogConfig& config, int rank, c10::Device device, std::filesystem::path folder,
            std::function<void(const std::string&)> on_trouble);
  // A trace that was begun and not finished is dropped: the peers were lost in one of its steps.
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Around each step; `finished`: steps that are finished before it, and after it.
  void before_step(std::int64_t finished);
  void after_step(std::int64_t finished);
  // Training ends: a trace that is under way is written, and that no step was traced is said.
  void end(std::int64_t finished);

 private:
  void write(std::int64_t finished);

  std::int64_t first_ = 0;  // the first step that is traced, counted from 1; 0: none
  std::int64_t last_ = 0;
  std::int64_t begun_at_ = 0;  // 0: no trace is under way
  int rank_;
  bool on_gpu_;
  std::filesystem::path folder_;
  std::function<void(const std::string&)> on_trouble_;
};

}  // namespace ddprun::trainer
