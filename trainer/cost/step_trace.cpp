#include "trainer/cost/step_trace.hpp"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <set>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace ddprun::trainer {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

std::string file_name(std::int64_t step, int rank) {
  char name[64];
  std::snprintf(name, sizeof name, "step-%09lld-rank-%d.json", static_cast<long long>(step), rank);
  return name;
}

}  // namespace

void prepare_traces() {
  std::error_code error;
  const bool has_driver = std::filesystem::exists("/dev/nvidiactl", error) || std::filesystem::exists("/dev/dxg", error);
  if (!has_driver) ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
}

StepTrace::StepTrace(const LogConfig& config, int rank, c10::Device device, std::filesystem::path folder,
                     std::function<void(const std::string&)> on_trouble)
    : rank_(rank), on_gpu_(device.is_cuda()), folder_(std::move(folder)), on_trouble_(std::move(on_trouble)) {
  if (std::find(config.trace_ranks.begin(), config.trace_ranks.end(), rank) == config.trace_ranks.end()) return;
  first_ = config.trace_step;
  last_ = first_ + config.trace_steps - 1;
}

StepTrace::~StepTrace() {
  if (started_at_ == 0) return;
  try {
    profiler::disableProfiler();
  } catch (const std::exception&) {
    // The error is ignored: the trace is dropped anyway, and a destructor must not throw.
  }
}

void StepTrace::before_step(std::int64_t finished) {
  if (first_ == 0 || started_at_ > 0 || finished + 1 < first_ || finished + 1 > last_) return;
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                     /*report_input_shapes=*/true);
  std::set<ActivityType> activities{ActivityType::CPU};
  if (on_gpu_) activities.insert(ActivityType::CUDA);
  try {
    profiler::prepareProfiler(config, activities);
    profiler::enableProfiler(config, activities,
                             {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
    started_at_ = finished + 1;
  } catch (const std::exception& error) {
    first_ = 0;
    on_trouble_(std::string("PyTorch's profiler cannot be started, so no step is traced: ") + error.what());
  }
}

void StepTrace::after_step(std::int64_t finished) {
  if (started_at_ > 0 && finished >= last_) write(finished);
}

void StepTrace::end(std::int64_t finished) {
  if (started_at_ > 0) {
    write(finished);
  } else if (first_ > finished) {
    on_trouble_("log.trace_step is " + std::to_string(first_) + ", but training ends after step " + std::to_string(finished) +
                ", so no step was traced. Set log.trace_step to an earlier step");
    first_ = 0;
  }
}

void StepTrace::write(std::int64_t finished) {
  const std::int64_t started_at = std::exchange(started_at_, 0);
  first_ = 0;
  const auto file = folder_ / file_name(started_at, rank_);
  try {
    const auto result = profiler::disableProfiler();
    std::filesystem::create_directories(folder_);
    result->save(file.string());
    std::error_code error;
    if (!std::filesystem::exists(file, error)) throw std::runtime_error("no file was written");
    std::printf("ddptrain: rank %d: wrote the trace of steps %lld to %lld to %s\n", rank_, static_cast<long long>(started_at),
                static_cast<long long>(finished), file.c_str());
    std::fflush(stdout);
  } catch (const std::exception& error) {
    on_trouble_("the trace of step " + std::to_string(started_at) + " could not be written to " + file.string() + ": " +
                error.what());
  }
}

}  // namespace ddprun::trainer
