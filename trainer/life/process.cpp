#include "trainer/life/process.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "trainer/life/version.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/parallel/device.hpp"
#include "trainer/reading/source_error.hpp"
#include "trainer/splits/held_out.hpp"
#include "trainer/task/figures.hpp"

namespace ddprun::trainer {

void Process::begin() {
  const WorkerEnvironment environment = options_.standby ? read_standby_environment() : read_environment();
  // use_determinism() calls setenv(), so it must run before the threads for the agent and for signals start. An error in the
  // config must be reported to the agent, so it is thrown only after the connection to the agent exists.
  std::exception_ptr wrong_config;
  try {
    config_ = load_config(options_.config, options_.overrides, nullptr,
                          [this](const std::string&) { return TaskConfig(training_program_.keys); });
    use_determinism(config_.deterministic);
    config_.data.columns_file = stored_columns();
  } catch (...) {
    wrong_config = std::current_exception();
  }
  place_.begin(environment, version_with_torch());
  if (wrong_config) std::rethrow_exception(wrong_config);
  if (!training_program_.built_in && config_.data.type == DataConfig::Type::kSynthetic) {
    throw UsageError("data.type \"synthetic\" works only with ddptrain; this program reads its data from data.dir");
  }
  task_ = training_program_.make_task(config_);
  require_metrics(config_, metrics_of_evaluation(config_, task_->figures()));
  check_share();
}

// Returns the path of the column plan of the training run that this process resumes. The file need not exist.
std::string Process::stored_columns() const {
  if (options_.resume == Options::Resume::kNever) return "";
  if (options_.resume == Options::Resume::kPath) {
    const RunLayout source{std::filesystem::absolute(options_.resume_from).parent_path().parent_path()};
    if (std::error_code unknown; std::filesystem::exists(source.columns(), unknown)) return source.columns();
  }
  return RunLayout{run_directory()}.columns();
}

std::filesystem::path Process::run_directory() const {
  return std::filesystem::absolute(options_.run_dir.empty() ? std::filesystem::path("runs") / config_.name : options_.run_dir);
}

void Process::check_share() const {
  if (config_.batch_size < environment().world_size) {
    throw UsageError("batch_size is " + std::to_string(config_.batch_size) + ", too small for " +
                     std::to_string(environment().world_size) + " workers; set batch_size to at least " +
                     std::to_string(environment().world_size) + ", or start fewer workers");
  }
}

// Starts to read the data in a thread, while the model and the group are created.
void Process::use(c10::Device device) {
  device_ = device;
  use_precision(config_.precision);
  data_coming_ = std::async(std::launch::async, [this, files = inflated_.files(environment(), agent())]() -> Sources {
    try {
      return hold_out(training_program_.read(config_, *device_, files), config_);
    } catch (...) {
      rethrow_as_source_error();
    }
  });
}

void Process::prepare_work() {
  arm_faults();
  if (!device_) use(choose_device(config_.device, environment(), options_.worker_per_gpu ? Fallback::kRefuse : Fallback::kCpu));
  if (config_.precision == TrainConfig::Precision::kTf32 && device_->is_cpu() && environment().local_rank == 0) {
    std::fputs("\"precision\": \"tf32\" has no effect on the CPU, which computes in fp32\n", stderr);
  }
  if (groups_can_be_broken()) agent()->send(channel::Regroupable{});
}

bool Process::groups_can_be_broken() const {
  return device_ && place_.groups_can_be_broken(*device_, options_.live_nccl);
}

// A fault is injected on one rank after one restart. So this function needs the rank and the restart count.
void Process::arm_faults() {
  if (const char* fault = std::getenv("DDPTRAIN_FAULT"); fault != nullptr && *fault != '\0') {
    faults_ = Faults(parse_fault(fault), environment().rank, environment().restart_count);
  } else if (const char* rehearsal = std::getenv("DDPTRAIN_CHAOS"); rehearsal != nullptr && *rehearsal != '\0') {
    faults_ = Faults(parse_faults(rehearsal, "--chaos"), environment().rank, environment().restart_count,
                     std::filesystem::path(options_.run_dir) / "chaos");
  }
}

std::string Process::device_and_memory() const {
  if (!device_) return "";
  const std::string precision = precision_text(config_, *device_);
  const std::string in = precision.starts_with("fp32") ? "" : " in " + precision;
  if (device_->is_cpu()) return "cpu" + in;
  constexpr std::int64_t kGiB = std::int64_t{1} << 30;
  const std::int64_t total = cuda_module()->memory(device_->index()).total_bytes;
  return "cuda with " + std::to_string((total + kGiB / 2) / kGiB) + " GiB" + in;
}

void Process::await_data() {
  if (data_coming_.valid()) data_ = data_coming_.get();
}

void Process::check_data(const std::filesystem::path& run_directory) {
  if (std::exchange(data_is_checked_, true)) return;
  const bool first_start = environment().restart_count == 0;
  const int rank = environment().rank;
  if (first_start && rank == 0) {
    for (const std::string& note : data_.notes) std::fprintf(stderr, "ddptrain: %s\n", note.c_str());
  }
  if (training_program_.notes && first_start && rank == 0) {
    for (const std::string& note : training_program_.notes(config_)) std::fprintf(stderr, "ddptrain: %s\n", note.c_str());
  }
  if (!training_program_.check) return;
  constexpr std::chrono::seconds kMaxWait{10};
  check_ = training_program_.check(config_, {.folder = run_directory / "picture-check",
                                             .rank = rank,
                                             .world = environment().world_size,
                                             .warn = [rank](const std::string& problem) {
                                               std::fprintf(stderr, "ddptrain: rank %d: %s\n", rank, problem.c_str());
                                             }});
  if (check_) check_->await(first_start ? kMaxWait : std::chrono::seconds(0));
}

void Process::join(std::optional<std::int64_t> held, std::uint64_t bucket_bytes) {
  const channel::Regroup order = place_.next_group(held);
  if (order.rank >= 0) {
    if (order.rank != environment().rank) records_.close();  // the log and the checkpoints belong to the old rank
    place_.move_to(order);
    check_share();
    inflated_.offer_again(environment(), *agent());
  }
  faults_.at(FaultPhase::kJoining, held.value_or(0));
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(config_.ddp.timeout_s * 1000));
  place_.form_group(
      device(),
      {.timeout = timeout, .backend = config_.ddp.backend, .bucket_bytes = bucket_bytes, .live_nccl = options_.live_nccl});
  if (!records_.log) records_.log.emplace(status(), environment().rank);
}

}  // namespace ddprun::trainer
