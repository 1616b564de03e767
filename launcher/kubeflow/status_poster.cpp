#include "launcher/kubeflow/status_poster.hpp"

#include <chrono>
#include <utility>
#include <variant>
#include <vector>

#include <boost/asio/post.hpp>

#include "common/base/printable.hpp"
#include "common/base/split.hpp"
#include "common/system/realtime.hpp"
#include "launcher/kubeflow/status_post.hpp"
#include "launcher/machine/program_output.hpp"

namespace ddprun {
namespace {

constexpr std::chrono::seconds kTimeout{15};    // the server answers within 10 s
constexpr std::chrono::seconds kEndTimeout{3};  // the last request delays the end of the job
constexpr std::size_t kMaxProblem = 500;

}  // namespace

void KubeflowStatusPoster::on(const RunEvent& event) {
  if (std::holds_alternative<RoundStarted>(event)) {
    meter_.restart();
    printed_ = {};
  } else if (const auto* reported = std::get_if<WorkerReported>(&event); reported != nullptr && reported->rank == 0) {
    on_message(reported->message, reported->time_ns);
  } else if (std::holds_alternative<RunEnded>(event) && schedule_.is_due_at_end()) {
    post_last();
  }
}

void KubeflowStatusPoster::on_message(const channel::FromWorker& message, std::int64_t time_ns) {
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

void KubeflowStatusPoster::on_output(int rank, Stream stream, std::string_view bytes) {
  if (reports_ || rank != 0 || !printed_.feed(stream, bytes)) return;
  const std::int64_t now_ns = realtime_ns();
  if (const auto progress = printed_.progress()) meter_.add(*progress, now_ns);
  on_data(now_ns);
}

void KubeflowStatusPoster::on_data(std::int64_t time_ns) {
  time_ns_ = time_ns;
  schedule_.on_data();
  if (schedule_.is_due(PostSchedule::Time::clock::now())) post();
}

void KubeflowStatusPoster::post() {
  schedule_.on_start(PostSchedule::Time::clock::now());
  const std::string body = kubeflow_status(meter_.shown(), evaluation_, time_ns_);
  request_ =
      std::make_unique<ToolRun>(io_, std::vector<std::string>{"/proc/self/exe", std::string(kPostStatusCommand), body},
                                kTimeout, ToolRun::Hooks{.done = [this](const std::string& output, const std::string& problem) {
                                  schedule_.on_done();
                                  note(output.empty() ? problem : output);
                                  // The ToolRun calls this function, so it must be destroyed later.
                                  boost::asio::post(io_, [run = std::shared_ptr<ToolRun>(std::move(request_))] {});
                                }});
}

// The event loop ends after this event, so this call waits for the request. A request that still runs has older data, so it is
// ended first.
void KubeflowStatusPoster::post_last() {
  request_.reset();
  const std::string body = kubeflow_status(meter_.shown(), evaluation_, time_ns_);
  const ProgramOutput done = output_of({"/proc/self/exe", std::string(kPostStatusCommand), body}, {.time = kEndTimeout});
  if (done.end == ProgramOutput::End::kTimedOut) return note("no answer within 3 s");
  note(done.text);
}

void KubeflowStatusPoster::note(const std::string& problem) {
  const std::string text(cut_to(without_spaces_around(problem), kMaxProblem));
  if (!text.empty() && text != last_problem_) {
    report_("the progress could not be sent to Kubeflow: " + printable(text) + "; this does not affect the job");
  }
  last_problem_ = text;
}

}  // namespace ddprun
