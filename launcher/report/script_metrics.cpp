// Implementation of script_metrics.hpp. `Files` does the file I/O and is used only on the queue's thread. The rest runs on the
// agent's thread.
#include "launcher/report/script_metrics.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/overloaded.hpp"
#include "common/metrics/event_file.hpp"
#include "common/metrics/metrics_log.hpp"
#include "common/run_directory/run_directory.hpp"

namespace ddprun {
namespace {

// Returns the TensorBoard tag of a metric. ddptrain and Hugging Face's Trainer use the same tags.
std::string tag_of(const std::string& figure) {
  constexpr std::string_view kEvaluated = "eval_";
  return figure.starts_with(kEvaluated) ? "eval/" + figure.substr(kEvaluated.size()) : "train/" + figure;
}

void set(MetricList& figures, const std::string& name, double value) {
  if (std::ranges::find(kReservedMetricNames, name) != std::end(kReservedMetricNames)) return;
  const auto found = std::ranges::find(figures, name, &Metric::name);
  if (found == figures.end()) {
    figures.push_back({name, value});
  } else {
    found->value = value;
  }
}

// Returns an unused name for the metrics file of an earlier run, such as metrics-1.jsonl.
std::filesystem::path name_for_an_earlier_run(const std::filesystem::path& file) {
  std::error_code ignored;
  for (int number = 1;; ++number) {
    std::filesystem::path name = file.parent_path() / ("metrics-" + std::to_string(number) + ".jsonl");
    if (!std::filesystem::exists(name, ignored)) return name;
  }
}

}  // namespace

class ScriptMetrics::Files {
 public:
  explicit Files(std::filesystem::path run_dir) : layout_{std::move(run_dir)} {}

  enum class Begin { kRun, kResume, kRestart };
  // Opens the files. Training continues after step `step`, so the lines of later steps are removed from an existing file.
  void begin(Begin begin, std::int64_t step, int world_size) {
    const auto problem = [this](const std::string& text) { problems_.push_back(text); };
    std::error_code ignored;
    const std::filesystem::path file = layout_.metrics();
    if (begin == Begin::kRun && std::filesystem::is_regular_file(file, ignored)) {
      // If this run starts from step 0, an existing file belongs to an earlier run.
      std::filesystem::rename(file, name_for_an_earlier_run(file), ignored);
    }
    log_ = std::make_unique<MetricsLog>(file, step, problem);
    if (begin != Begin::kRun) {
      log_->write(begin == Begin::kRestart ? "restart" : "resume",
                  {{"step", std::max<std::int64_t>(0, step)}, {"world_size", world_size}, {"checkpoint", ""}});
    }
    events_ = std::make_unique<EventFile>(layout_.tensorboard(), step, problem);
  }

  void write(const Line& line) {
    nlohmann::ordered_json fields{{"epoch", line.epoch}, {"step", line.step}};
    std::vector<EventFile::Scalar> scalars;
    for (const Metric& figure : line.figures) {
      fields[figure.name] = figure.value;
      scalars.push_back({tag_of(figure.name), figure.value});
    }
    if (line.samples > 0) fields["samples"] = line.samples;
    log_->write("step", fields);
    events_->scalars(line.step, scalars);
  }

  void write(const channel::CheckpointPublished& published) {
    log_->write("checkpoint", {{"step", published.step},
                               {"path", published.path},
                               {"bytes", published.bytes},
                               {"pause_s", published.pause_s},
                               {"save_s", published.save_s}});
  }

  // Returns the problems found since the last call.
  std::vector<std::string> take_problems() { return std::exchange(problems_, {}); }

 private:
  RunLayout layout_;
  std::unique_ptr<MetricsLog> log_;
  std::unique_ptr<EventFile> events_;
  std::vector<std::string> problems_;
};

ScriptMetrics::ScriptMetrics(std::filesystem::path run_dir, FileQueue& files, std::function<void(const std::string&)> report)
    : queue_(files), report_(std::move(report)), files_(std::make_shared<Files>(std::move(run_dir))) {}

void ScriptMetrics::on(const RunEvent& event) {
  if (const auto* round = std::get_if<RoundStarted>(&event)) {
    write_line();
    world_size_ = round->world_size;
    begins_ = true;
  } else if (const auto* reported = std::get_if<WorkerReported>(&event); reported != nullptr && reported->rank == 0) {
    if (const auto* progress = std::get_if<channel::Progress>(&reported->message)) on_message(*progress, reported->time_ns);
    if (const auto* published = std::get_if<channel::CheckpointPublished>(&reported->message)) on_message(*published);
  } else if (const auto* ended = std::get_if<WorkerEnded>(&event); ended != nullptr && ended->rank == 0) {
    write_line();
  } else if (std::holds_alternative<RunEnded>(event)) {
    write_line();
    // This is the last event: results that the queue returns later are not processed. So the last problems must be reported
    // now.
    if (!first_ && queue_.wait_for(FileQueue::kMaxBlock)) report_all(*problems_, report_);
  }
}

void ScriptMetrics::on_message(const channel::Progress& progress, std::int64_t time_ns) {
  const std::int64_t step = progress.figures_step.value_or(progress.step);
  if (begins_ || (line_ && step < line_->step)) begin_at(step - 1);
  if (line_ && line_->step != step) write_line();
  if (!line_) line_ = Line{.step = step};
  line_->epoch = progress.epoch;
  line_->samples = progress.samples;
  if (progress.loss) set(line_->figures, "loss", *progress.loss);
  if (progress.lr) set(line_->figures, "lr", *progress.lr);
  for (const Metric& figure : progress.figures) set(line_->figures, figure.name, figure.value);
  meter_.add(progress, time_ns);
  const std::optional<double> speed = meter_.shown().progress.samples_per_s;
  if (speed && speed != std::exchange(speed_, speed)) set(line_->figures, "samples_per_s", *speed);
}

void ScriptMetrics::on_message(const channel::CheckpointPublished& published) {
  if (begins_) begin_at(published.step);
  add([published](Files& files) { files.write(published); });
}

void ScriptMetrics::begin_at(std::int64_t step) {
  write_line();
  using Begin = Files::Begin;
  const Begin begin = !first_ ? Begin::kRestart : step <= 0 ? Begin::kRun : Begin::kResume;
  first_ = begins_ = false;
  meter_.restart();
  speed_.reset();
  add([begin, step, world_size = world_size_](Files& files) { files.begin(begin, step, world_size); });
}

// Queues the current line. A step without metrics has no line. If too many lines wait for the disk, the line is dropped.
void ScriptMetrics::write_line() {
  const std::optional<Line> line = std::exchange(line_, std::nullopt);
  if (!line || line->figures.empty()) return;
  if (*waiting_ >= kMaxWaiting) {
    if (!std::exchange(left_out_, true))
      report_("the disk of the run directory is too slow: some steps will be missing in metrics.jsonl");
    return;
  }
  add([line = *line](Files& files) { files.write(line); });
}

void ScriptMetrics::add(std::function<void(Files&)> work) {
  ++*waiting_;
  queue_.add(
      [files = files_, work = std::move(work), problems = problems_] {
        work(*files);
        std::vector<std::string> found = files->take_problems();
        const std::lock_guard lock(problems->mutex);
        std::move(found.begin(), found.end(), std::back_inserter(problems->unreported));
      },
      [waiting = waiting_, problems = problems_, report = report_] {
        --*waiting;
        report_all(*problems, report);
      });
}

void ScriptMetrics::report_all(Problems& problems, const std::function<void(const std::string&)>& report) {
  std::vector<std::string> unreported;
  {
    const std::lock_guard lock(problems.mutex);
    unreported.swap(problems.unreported);
  }
  for (const std::string& problem : unreported) report(problem + "; the job continues");
}

}  // namespace ddprun
