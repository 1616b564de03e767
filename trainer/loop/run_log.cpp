#include "trainer/loop/run_log.hpp"

#include <cstdarg>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/system/realtime.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::ordered_json;

// Each message wakes the agent, which costs about 50 us, so the rate of messages is limited. Right after a start, messages are
// more frequent. Most failures occur then, and the agent detects a failure sooner if messages are frequent.
constexpr std::chrono::milliseconds kMetricsInterval{250};
constexpr std::chrono::milliseconds kHeartbeat{400};
constexpr std::chrono::milliseconds kEarlyHeartbeat{50};
constexpr std::chrono::seconds kEarly{5};
constexpr std::chrono::seconds kMinPrintInterval{1};

}  // namespace

void RunLog::open(const RunLayout& layout, const TrainConfig& config, const RunLength& length, std::int64_t resume_step) {
  length_ = length;
  opened_ = true;
  if (rank_ != 0) return;
  const auto on_trouble = [this](const std::string& trouble) {
    std::fprintf(stderr, "ddptrain: rank 0: %s; training continues\n", trouble.c_str());
  };
  metrics_ = std::make_unique<MetricsLog>(layout.metrics(), resume_step, on_trouble);
  if (config.log.tensorboard) events_ = std::make_unique<EventFile>(layout.tensorboard(), resume_step, on_trouble);
  for (const std::string& warning : std::exchange(early_warnings_, {})) metrics_->write("warning", {{"message", warning}});
}

void RunLog::resumed(ResumeKind resume_kind, std::int64_t step, int world, const std::string& checkpoint) {
  if (rank_ != 0) return;
  ordered_json fields{{"step", step}};
  fields["world_size"] = world;
  fields["checkpoint"] = checkpoint;
  metrics_->write(resume_kind == ResumeKind::kRestart ? "restart" : "resume", fields);
  print_line("resumed at step %lld from %s", static_cast<long long>(step), checkpoint.c_str());
}

void RunLog::regrouped(std::int64_t step, int world, const std::vector<int>& replaced) {
  if (rank_ != 0) return;
  metrics_->write("regroup", {{"step", step}, {"world_size", world}, {"replaced", replaced}});
}

void RunLog::catch_up(const std::optional<StepMetrics>& figures, const std::optional<StepEvaluation>& evaluation) {
  if (rank_ != 0) return;
  if (figures && metrics_->newest("step") < figures->step) step(*figures);
  if (evaluation && metrics_->newest("eval") < evaluation->step) this->evaluation(evaluation->step, evaluation->result);
}

void RunLog::start_clock(std::int64_t step) {
  interval_begin_ = Clock::now();
  interval_samples_ = length_.samples_after(step);
  clock_started_ = interval_begin_;
  last_sent_ = {};
}

void RunLog::step(const StepMetrics& figures, const MetricList& parts) {
  const auto& [step, loss, lr, gradient_norm, peak_memory, largest_peak_memory, skipped] = figures;
  const auto now = Clock::now();
  const std::int64_t samples = length_.samples_after(step);
  const double seconds = std::chrono::duration<double>(now - interval_begin_).count();
  const double speed = seconds > 0 ? static_cast<double>(samples - interval_samples_) / seconds : 0;
  interval_begin_ = now;
  interval_samples_ = samples;

  const bool early = now - clock_started_ < kEarly;
  if (rank_ != 0 && !early) return heartbeat(step);
  if (status_.agent() != nullptr && (early || now - last_metrics_ >= kMetricsInterval || step == length_.total_steps)) {
    channel::Progress message = progress(step);
    if (rank_ == 0) {
      message.loss = loss;
      message.lr = lr;
      message.samples_per_s = speed;
    }
    status_.agent()->send(message);
    last_sent_ = last_metrics_ = now;
  }
  if (rank_ != 0) return;

  const std::int64_t epoch = epoch_of(step);
  ordered_json record{{"epoch", epoch},
                      {"step", step},
                      {"loss", loss},
                      {"lr", lr},
                      {"gradient_norm", gradient_norm},  // written as null if it is not finite
                      {"samples", samples},
                      {"samples_per_s", speed}};
  std::vector<EventFile::Scalar> scalars{
      {"train/loss", loss}, {"train/lr", lr}, {"train/gradient_norm", gradient_norm}, {"train/samples_per_s", speed}};
  const auto add = [&](const std::string& name, auto value) {
    record[name] = value;
    scalars.push_back({"train/" + name, static_cast<double>(value)});
  };
  const double flops = speed * flops_per_sample_.value_or(0);
  if (flops > 0) record["flops_per_s"] = flops;
  if (flops > 0 && peak_flops_per_s_ > 0) add("mfu", flops / peak_flops_per_s_);
  if (peak_memory > 0) add("peak_memory_bytes", peak_memory);
  if (largest_peak_memory > 0) add("largest_peak_memory_bytes", largest_peak_memory);
  if (skipped) add("skipped_steps", *skipped);
  for (const Metric& part : parts) {
    record[part.name] = part.value;
    scalars.push_back({"time/" + part.name, part.value});
  }
  metrics_->write("step", record);
  if (events_) events_->scalars(step, scalars);
  if (now - last_printed_ >= kMinPrintInterval || step == 1 || step == length_.total_steps) {
    last_printed_ = now;
    print_line("epoch %lld/%lld  step %lld/%lld  loss %.4f  lr %.3g  %.0f samples/s", static_cast<long long>(epoch + 1),
               static_cast<long long>(length_.epochs), static_cast<long long>(step),
               static_cast<long long>(length_.total_steps), loss, lr, speed);
  }
}

void RunLog::heartbeat(std::int64_t step) {
  if (status_.agent() == nullptr) return;
  const auto now = Clock::now();
  if (now - last_sent_ < (now - clock_started_ < kEarly ? kEarlyHeartbeat : kHeartbeat)) return;
  last_sent_ = now;
  status_.agent()->send(progress(step));
}

void RunLog::evaluation(std::int64_t step, const Evaluation& result) {
  if (rank_ != 0) return;
  const std::int64_t epoch = epoch_of(step);
  // The file may already have this record: a former rank 0 may have written it and failed before the other ranks had the
  // result. The survivors then repeat the evaluation, and must not write the record twice.
  if (metrics_->newest("eval") < step) {
    nlohmann::ordered_json record{{"epoch", epoch}, {"step", step}};
    for (const Metric& figure : result.figures) record[figure.name] = figure.value;
    record["samples"] = result.samples;
    metrics_->write("eval", record);
  }
  if (events_) {
    std::vector<EventFile::Scalar> scalars;
    for (const Metric& figure : result.figures) scalars.push_back({"eval/" + figure.name, figure.value});
    events_->scalars(step, scalars);
  }
  if (status_.agent() != nullptr) {
    status_.agent()->send(
        channel::EvalResult{.step = step, .epoch = epoch, .figures = result.figures, .samples = result.samples});
  }
  std::string figures;
  for (const Metric& figure : result.figures) figures += "  test " + metric_text(figure);
  print_line("epoch %lld/%lld  step %lld/%lld%s", static_cast<long long>(epoch + 1), static_cast<long long>(length_.epochs),
             static_cast<long long>(step), static_cast<long long>(length_.total_steps), figures.c_str());
}

void RunLog::report_checkpoint_to_agent(std::int64_t step, const std::string& path, std::int64_t bytes, double pause_s,
                                        double save_s) const {
  if (status_.agent() == nullptr) return;
  status_.agent()->send(
      channel::CheckpointPublished{.step = step, .path = path, .pause_s = pause_s, .save_s = save_s, .bytes = bytes});
}

void RunLog::checkpoint(std::int64_t step, const std::string& path, std::int64_t bytes, double pause_s, double save_s) {
  if (rank_ != 0 || !metrics_) return;
  metrics_->write("checkpoint", {{"step", step}, {"path", path}, {"bytes", bytes}, {"pause_s", pause_s}, {"save_s", save_s}});
}

void RunLog::checkpoint_interval(std::int64_t step, double seconds, double save_s, double mtbf_s, std::int64_t failures) {
  if (rank_ != 0) return;
  if (metrics_) {
    metrics_->write("checkpoint_interval",
                    {{"step", step}, {"interval_s", seconds}, {"save_s", save_s}, {"mtbf_s", mtbf_s}, {"failures", failures}});
  }
  std::printf(
      "ddptrain: the checkpoint interval is now %.0f s: a save takes %.2g s, and one failure is expected every %.1f h (%lld "
      "failures so far in this run)\n",
      seconds, save_s, mtbf_s / 3600, static_cast<long long>(failures));
  std::fflush(stdout);
}

void RunLog::stopped_early(std::int64_t step, const std::string& why) const {
  if (rank_ != 0) return;
  std::printf("ddptrain: training ends early, after step %lld of %lld: %s\n", static_cast<long long>(step),
              static_cast<long long>(length_.total_steps), why.c_str());
  std::fflush(stdout);
}

void RunLog::end(std::int64_t step, const std::string& how, std::int64_t skipped) {
  if (rank_ != 0) return;
  metrics_->write("end", {{"step", step}, {"epoch", epoch_of(step)}, {"samples", length_.samples_after(step)}, {"how", how}});
  if (skipped > 0) {
    std::printf("ddptrain: %lld of %lld steps did not change the weights: their loss or a gradient was NaN or infinite\n",
                static_cast<long long>(skipped), static_cast<long long>(step));
    std::fflush(stdout);
  }
  print_line("%s at step %lld/%lld", how.c_str(), static_cast<long long>(step), static_cast<long long>(length_.total_steps));
}

void RunLog::warn(channel::ErrorKind kind, const std::string& message) {
  std::fprintf(stderr, "ddptrain: rank %d: %s\n", rank_, message.c_str());
  if (metrics_) {
    metrics_->write("warning", {{"message", message}});
  } else if (rank_ == 0) {
    early_warnings_.push_back(message);
  }
  if (status_.agent() != nullptr) {
    status_.agent()->send(channel::WorkerError{.kind = kind,
                                               .message = message,
                                               .step = status_.step(),
                                               .phase = status_.phase(),
                                               .time_ns = realtime_ns(),
                                               .fatal = false,
                                               .exit_code = 0});
  }
}

channel::Progress RunLog::progress(std::int64_t step) const {
  return {.step = step,
          .steps_total = length_.total_steps,
          .epoch = epoch_of(step),
          .epochs = length_.epochs,
          .samples = length_.samples_after(step)};
}

void RunLog::print_line(const char* format, ...) const {
  if (rank_ != 0 || status_.agent() != nullptr) return;
  std::va_list arguments;
  va_start(arguments, format);
  std::vprintf(format, arguments);
  va_end(arguments);
  std::putchar('\n');
  std::fflush(stdout);
}

}  // namespace ddprun::trainer
