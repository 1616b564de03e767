// What a script tells with ddprun.step(), in metrics.jsonl and TensorBoard's files of its run directory, like ddptrain's own.
// An observer of the agent's events; launcher/start/run_plan.cpp makes it for a script with --run-dir. Only rank 0 tells
// figures, so the agent of its node is the only writer. All work on files is done behind the agent's queue, and a disk that
// stalls costs lines, not steps.
//
// Each step has one line. A line waits until the next step is told or the worker ends, since a step may be told twice: by its
// number first, then with its loss. After a restart, or when the steps go back, the lines behind the step that the script
// continues from are removed.
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
  static constexpr std::size_t kMostWaiting = 1000;  // lines; those that come while so many wait for the disk are left out

  // `say` gets a line for people when the files have trouble.
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
  // What the queue's thread has found and this one has not said yet.
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
  std::optional<Line> line_;  // of the newest step
  std::optional<double> speed_;
  bool begins_ = true;  // nothing was heard of rank 0 in this round
  bool first_ = true;   // nor in an earlier one
  int world_size_ = 0;
  std::shared_ptr<std::size_t> waiting_ = std::make_shared<std::size_t>(0);
  bool left_out_ = false;
};

}  // namespace ddprun
