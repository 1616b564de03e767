// Shows the progress of a job in a tool of its scheduler. Kubeflow gets it as a request to its status server, so that `kubectl
// get trainjob` shows it. Slurm gets it as the comment of the job, which `scontrol show job` shows.
//
// Rank 0 reports the progress over the worker channel. If it reports nothing, the progress is read from the lines that it
// prints. If rank 0 does neither, nothing is sent. Only the agent on rank 0's node sends a status. Each status needs its own
// process, which is started at most once a minute (PostSchedule). run_plan.cpp creates this observer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/hang/tool_run.hpp"
#include "launcher/options/options.hpp"
#include "launcher/scheduler_status/post_schedule.hpp"
#include "launcher/scheduler_status/printed_progress.hpp"

namespace ddprun {

class ProgressPoster final : public RunObserver {
 public:
  struct Target {
    std::string failure;            // start of the message after a failed command
    bool stops_at_failure = false;  // true: after a command has failed, no other command is started
    // Returns the command that sends a status. The command prints nothing if it succeeds. `evaluation`: metrics of the newest
    // evaluation. `time_ns`: the time of the progress.
    std::function<std::vector<std::string>(const ProgressShown& progress, const MetricList& evaluation, std::int64_t time_ns)>
        command;
  };
  // `report` receives a message for the user after a failed command, unless the previous command failed for the same reason.
  ProgressPoster(boost::asio::io_context& io, Target target, std::function<void(const std::string& problem)> report)
      : io_(io), target_(std::move(target)), report_(std::move(report)) {}
  void on(const RunEvent& event) override;
  // Call this with the output of a worker. The output is used only until rank 0 reports its progress.
  void on_output(int rank, Stream stream, std::string_view bytes);

 private:
  void on_message(const channel::FromWorker& message, std::int64_t time_ns);
  void on_data(std::int64_t time_ns);
  std::vector<std::string> command() const { return target_.command(meter_.shown(), evaluation_, time_ns_); }
  void post();
  void post_last();
  void note(const std::string& problem);

  boost::asio::io_context& io_;
  Target target_;
  std::function<void(const std::string&)> report_;
  ProgressMeter meter_;
  MetricList evaluation_;
  PrintedProgress printed_;
  bool reports_ = false;      // rank 0 has reported its progress, so its output is not read
  bool stopped_ = false;      // a command has failed, and stops_at_failure is set
  std::int64_t time_ns_ = 0;  // time of the newest data
  PostSchedule schedule_;
  std::unique_ptr<ToolRun> request_;
  std::string last_problem_;
};

// Returns the targets for this process's environment: Kubeflow's status server, and the comment of a Slurm job. The result is
// often empty.
std::vector<ProgressPoster::Target> scheduler_targets(const Environment& environment);

}  // namespace ddprun
