// Writes the metrics that a script reports with ddprun.step() to metrics.jsonl and to TensorBoard files in its run directory,
// in ddptrain's format. The class observes the agent's events. launcher/launch/run_plan.cpp creates it for a script with
// --run-dir. Only rank 0 reports metrics, so only the agent on rank 0's node writes the files. All file I/O goes through the
// agent's queue: if the disk stalls, metrics are lost, but steps are not delayed.
//
// Each step has one line. A script may report a step in two calls, first its number and then its loss. A line is therefore
// written only when the next step is reported or the worker ends. After a restart, or if the step number decreases, the script
// repeats some steps. Lines of those steps are then removed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/base/metric.hpp"
#include "common/system/file_queue.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

class ScriptMetrics : public RunObserver {
 public:
  // Maximum number of lines that wait for the disk. If it is reached, new lines are dropped.
  static constexpr std::size_t kMaxWaiting = 1000;

  // `report` receives a message for the user when a file cannot be written.
  ScriptMetrics(std::filesystem::path run_dir, FileQueue& files, std::function<void(const std::string& problem)> report);
  void on(const RunEvent& event) override;

 private:
  struct Line {
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    std::int64_t samples = 0;
    MetricList figures{};
  };
  class Files;  // used on the queue's thread only
  // Problems found by the queue's thread that the agent's thread has not reported yet.
  struct Problems {
    std::mutex mutex{};
    std::vector<std::string> unreported{};
  };

  void on_message(const channel::Progress& progress, std::int64_t time_ns);
  void on_message(const channel::CheckpointPublished& published);
  void begin_at(std::int64_t step);
  void write_line();
  void add(std::function<void(Files&)> work);
  static void report_all(Problems& problems, const std::function<void(const std::string&)>& report);

  FileQueue& queue_;
  std::function<void(const std::string&)> report_;
  std::shared_ptr<Files> files_;
  std::shared_ptr<Problems> problems_ = std::make_shared<Problems>();
  ProgressMeter meter_;
  std::optional<Line> line_;  // the line of the newest step, which is not written yet
  std::optional<double> speed_;
  bool begins_ = true;  // true until rank 0 has reported something in this round
  bool first_ = true;   // true until rank 0 has reported something in any round
  int world_size_ = 0;
  std::shared_ptr<std::size_t> waiting_ = std::make_shared<std::size_t>(0);
  bool left_out_ = false;
};

}  // namespace ddprun
