// Writes the metrics that a script reports with ddprun.step() to metrics.jsonl and TensorBoard files in its run directory, in
// the format of ddptrain. Observes the agent's events; launcher/start/run_plan.cpp creates it for a script with --run-dir. Only
// rank 0 reports metrics, so the agent of its node is the only writer. All file I/O goes through the agent's queue. If the disk
// stalls, lines are lost, but steps are not delayed.
//
// Each step has one line. The line is held back until the next step is reported or the worker ends, since a step may be
// reported twice: first its number, then its loss. After a restart, or if the step number decreases, lines later than the step
// from which the script continues are removed.
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

#include "common/base/figure.hpp"
#include "common/system/file_queue.hpp"
#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

class ScriptFigures : public RunObserver {
 public:
  // Maximum number of lines that wait for the disk; further lines are dropped.
  static constexpr std::size_t kMostWaiting = 1000;

  // `say` receives a message for people if a file cannot be written.
  ScriptFigures(std::filesystem::path run_dir, FileQueue& files, std::function<void(const std::string& trouble)> say);
  void on(const RunEvent& event) override;

 private:
  struct Line {
    std::int64_t step = 0;
    std::int64_t epoch = 0;
    std::int64_t samples = 0;
    FigureList figures{};
  };
  class Files;  // used on the queue's thread only
  // Problems that the queue's thread has found and this thread has not reported yet.
  struct Troubles {
    std::mutex mutex{};
    std::vector<std::string> unsaid{};
  };

  void hear(const channel::Progress& progress, std::int64_t time_ns);
  void hear(const channel::CheckpointPublished& published);
  void begin_at(std::int64_t step);
  void write_line();
  void add(std::function<void(Files&)> work);
  static void say_all(Troubles& troubles, const std::function<void(const std::string&)>& say);

  FileQueue& queue_;
  std::function<void(const std::string&)> say_;
  std::shared_ptr<Files> files_;
  std::shared_ptr<Troubles> troubles_ = std::make_shared<Troubles>();
  ProgressMeter meter_;
  std::optional<Line> line_;  // the line of the newest step
  std::optional<double> speed_;
  bool begins_ = true;  // rank 0 has reported nothing in this round
  bool first_ = true;   // rank 0 has reported nothing in any round
  int world_size_ = 0;
  std::shared_ptr<std::size_t> waiting_ = std::make_shared<std::size_t>(0);
  bool left_out_ = false;
};

}  // namespace ddprun
