#include "launcher/scheduler_status/progress_poster.hpp"

#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/post.hpp>

#include "common/base/printable.hpp"
#include "common/base/split.hpp"
#include "common/system/realtime.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/machine/program_output.hpp"
#include "launcher/scheduler_status/kubeflow_body.hpp"
#include "launcher/scheduler_status/kubeflow_post.hpp"
#include "launcher/scheduler_status/slurm_comment.hpp"
#include "launcher/scheduler_status/slurm_comment_post.hpp"
#include "launcher/submit/slurm/slurm_job.hpp"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kTimeout{15};    // the server answers within 10 s
constexpr std::chrono::seconds kEndTimeout{3};  // shorter, because the job cannot end before the last request
constexpr std::size_t kMaxProblem = 500;

}  // namespace

void ProgressPoster::on(const RunEvent& event) {
  if (std::holds_alternative<RoundStarted>(event)) {
    meter_.restart();
    printed_ = {};
  } else if (const auto* reported = std::get_if<WorkerReported>(&event); reported != nullptr && reported->rank == 0) {
    on_message(reported->message, reported->time_ns);
  } else if (std::holds_alternative<RunEnded>(event) && !stopped_ && schedule_.is_due_at_end()) {
    post_last();
  }
}

void ProgressPoster::on_message(const channel::FromWorker& message, std::int64_t time_ns) {
  if (const auto* progress = std::get_if<channel::Progress>(&message)) {
    if (!std::exchange(reports_, true)) meter_.restart();  // drops the progress that was read from the output
    meter_.add(*progress, time_ns);
  } else if (const auto* evaluated = std::get_if<channel::EvalResult>(&message)) {
    evaluation_ = evaluated->figures;
  } else {
    return;
  }
  on_data(time_ns);
}

void ProgressPoster::on_output(int rank, Stream stream, std::string_view bytes) {
  if (reports_ || rank != 0 || !printed_.feed(stream, bytes)) return;
  const std::int64_t now_ns = realtime_ns();
  if (const auto progress = printed_.progress()) meter_.add(*progress, now_ns);
  on_data(now_ns);
}

void ProgressPoster::on_data(std::int64_t time_ns) {
  time_ns_ = time_ns;
  schedule_.on_data();
  if (!stopped_ && schedule_.is_due(PostSchedule::Time::clock::now())) post();
}

void ProgressPoster::post() {
  schedule_.on_start(PostSchedule::Time::clock::now());
  request_ = std::make_unique<ToolRun>(io_, command(), kTimeout,
                                       ToolRun::Hooks{.done = [this](const std::string& output, const std::string& problem) {
                                         schedule_.on_done();
                                         note(output.empty() ? problem : output);
                                         // The ToolRun calls this function, so the ToolRun must not be destroyed before the
                                         // function returns.
                                         boost::asio::post(io_, [run = std::shared_ptr<ToolRun>(std::move(request_))] {});
                                       }});
}

// The event loop ends after this event, so this call waits for the request. A request that still runs has older data, so it is
// ended first.
void ProgressPoster::post_last() {
  request_.reset();
  const ProgramOutput done = output_of(command(), {.time = kEndTimeout});
  if (done.end == ProgramOutput::End::kTimedOut) return note("no answer within 3 s");
  note(done.text);
}

void ProgressPoster::note(const std::string& problem) {
  const std::string text(cut_to(without_spaces_around(problem), kMaxProblem));
  if (!text.empty() && text != last_problem_) {
    report_(target_.failure + ": " + printable(text) + "; this does not affect the job");
  }
  stopped_ = target_.stops_at_failure && !text.empty();
  last_problem_ = text;
}

std::vector<ProgressPoster::Target> scheduler_targets(const Environment& environment) {
  std::vector<ProgressPoster::Target> targets;
  if (has_kubeflow_server()) {
    targets.push_back({.failure = "the progress could not be sent to Kubeflow",
                       .command = [](const ProgressShown& progress, const MetricList& evaluation, std::int64_t time_ns) {
                         return std::vector<std::string>{"/proc/self/exe", std::string(kPostStatusCommand),
                                                         kubeflow_status(progress, evaluation, time_ns)};
                       }});
  }
  const auto job = slurm_job_of(environment);
  if (job && this_machine().on_path("scontrol")) {
    targets.push_back({.failure = "the progress could not be written to the comment of the Slurm job",
                       .stops_at_failure = true,  // the site may not allow users to set comments
                       .command = [job = *job](const ProgressShown& progress, const MetricList&, std::int64_t) {
                         return std::vector<std::string>{"/proc/self/exe", std::string(kSetSlurmCommentCommand), job,
                                                         slurm_comment(progress)};
                       }});
  }
  return targets;
}

}  // namespace ddprun
