// Implementation of script_figures.hpp.
#include "launcher/report/script_figures.hpp"

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

// The tag names that ddptrain and Hugging Face's Trainer use in TensorBoard.
std::string tag_of(const std::string& figure) {
  constexpr std::string_view kEvaluated = "eval_";
  return figure.starts_with(kEvaluated) ? "eval/" + figure.substr(kEvaluated.size()) : "train/" + figure;
}

void set(FigureList& figures, const std::string& name, double value) {
  if (std::ranges::find(kReservedFigureNames, name) != std::end(kReservedFigureNames)) return;
  const auto found = std::ranges::find(figures, name, &Figure::name);
  if (found == figures.end()) {
    figures.push_back({name, value});
  } else {
    found->value = value;
  }
}

// The new name for the file of an earlier run: metrics-1.jsonl.
std::filesystem::path name_for_an_earlier_run(const std::filesystem::path& file) {
  std::error_code ignored;
  for (int number = 1;; ++number) {
    std::filesystem::path name = file.parent_path() / ("metrics-" + std::to_string(number) + ".jsonl");
    if (!std::filesystem::exists(name, ignored)) return name;
  }
}

}  // namespace

class ScriptFigures::Files {
 public:
  explicit Files(std::filesystem::path run_dir) : layout_{std::move(run_dir)} {}

  enum class Begin { kRun, kResume, kRestart };
  // `step`: the step after which training continues.
  void begin(Begin begin, std::int64_t step, int world_size) {
    const auto trouble = [this](const std::string& text) { troubles_.push_back(text); };
    std::error_code ignored;
    const std::filesystem::path file = layout_.metrics();
    if (begin == Begin::kRun && std::filesystem::is_regular_file(file, ignored)) {
      // The file belongs to an earlier run, and this run starts from step 0.
      std::filesystem::rename(file, name_for_an_earlier_run(file), ignored);
    }
    log_ = std::make_unique<MetricsLog>(file, step, trouble);
    if (begin != Begin::kRun) {
      log_->write(begin == Begin::kRestart ? "restart" : "resume",
                  {{"step", std::max<std::int64_t>(0, step)}, {"world_size", world_size}, {"checkpoint", ""}});
    }
    events_ = std::make_unique<EventFile>(layout_.tensorboard(), step, trouble);
  }

  void write(const Line& line) {
    nlohmann::ordered_json fields{{"epoch", line.epoch}, {"step", line.step}};
    std::vector<EventFile::Scalar> scalars;
    for (const Figure& figure : line.figures) {
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

  // Problems since the last call.
  std::vector<std::string> take_troubles() { return std::exchange(troubles_, {}); }

 private:
  RunLayout layout_;
  std::unique_ptr<MetricsLog> log_;
  std::unique_ptr<EventFile> events_;
  std::vector<std::string> troubles_;
};

ScriptFigures::ScriptFigures(std::filesystem::path run_dir, FileQueue& files, std::function<void(const std::string&)> say)
    : queue_(files), say_(std::move(say)), files_(std::make_shared<Files>(std::move(run_dir))) {}

void ScriptFigures::on(const RunEvent& event) {
  if (const auto* round = std::get_if<RoundStarted>(&event)) {
    write_line();
    world_size_ = round->world_size;
    begins_ = true;
  } else if (const auto* spoke = std::get_if<WorkerSpoke>(&event); spoke != nullptr && spoke->rank == 0) {
    if (const auto* progress = std::get_if<channel::Progress>(&spoke->message)) hear(*progress, spoke->time_ns);
    if (const auto* published = std::get_if<channel::CheckpointPublished>(&spoke->message)) hear(*published);
  } else if (const auto* ended = std::get_if<WorkerEnded>(&event); ended != nullptr && ended->rank == 0) {
    write_line();
  } else if (std::holds_alternative<RunEnded>(event)) {
    write_line();
    // Last chance to report problems: results that the queue returns after this event are not shown.
    if (!first_ && queue_.is_done_within(FileQueue::kMoment)) say_all(*troubles_, say_);
  }
}

void ScriptFigures::hear(const channel::Progress& progress, std::int64_t time_ns) {
  const std::int64_t step = progress.figures_step.value_or(progress.step);
  if (begins_ || (line_ && step < line_->step)) begin_at(step - 1);
  if (line_ && line_->step != step) write_line();
  if (!line_) line_ = Line{.step = step};
  line_->epoch = progress.epoch;
  line_->samples = progress.samples;
  if (progress.loss) set(line_->figures, "loss", *progress.loss);
  if (progress.lr) set(line_->figures, "lr", *progress.lr);
  for (const Figure& figure : progress.figures) set(line_->figures, figure.name, figure.value);
  meter_.add(progress, time_ns);
  const std::optional<double> speed = meter_.shown().progress.samples_per_s;
  if (speed && speed != std::exchange(speed_, speed)) set(line_->figures, "samples_per_s", *speed);
}

void ScriptFigures::hear(const channel::CheckpointPublished& published) {
  if (begins_) begin_at(published.step);
  add([published](Files& files) { files.write(published); });
}

void ScriptFigures::begin_at(std::int64_t step) {
  write_line();
  using Begin = Files::Begin;
  const Begin begin = !first_ ? Begin::kRestart : step <= 0 ? Begin::kRun : Begin::kResume;
  first_ = begins_ = false;
  meter_.restart();
  speed_.reset();
  add([begin, step, world_size = world_size_](Files& files) { files.begin(begin, step, world_size); });
}

// A step without metrics gets no line.
void ScriptFigures::write_line() {
  const std::optional<Line> line = std::exchange(line_, std::nullopt);
  if (!line || line->figures.empty()) return;
  if (*waiting_ >= kMostWaiting) {
    if (!std::exchange(left_out_, true)) say_("the disk of the run directory is slow: metrics.jsonl will miss some steps");
    return;
  }
  add([line = *line](Files& files) { files.write(line); });
}

void ScriptFigures::add(std::function<void(Files&)> work) {
  ++*waiting_;
  queue_.add(
      [files = files_, work = std::move(work), troubles = troubles_] {
        work(*files);
        std::vector<std::string> found = files->take_troubles();
        const std::lock_guard lock(troubles->mutex);
        std::move(found.begin(), found.end(), std::back_inserter(troubles->unsaid));
      },
      [waiting = waiting_, troubles = troubles_, say = say_] {
        --*waiting;
        say_all(*troubles, say);
      });
}

void ScriptFigures::say_all(Troubles& troubles, const std::function<void(const std::string&)>& say) {
  std::vector<std::string> unsaid;
  {
    const std::lock_guard lock(troubles.mutex);
    unsaid.swap(troubles.unsaid);
  }
  for (const std::string& trouble : unsaid) say(trouble + "; the job goes on");
}

}  // namespace ddprun
