// Sends the progress of a job to Kubeflow's status server, so that `kubectl get trainjob` shows it. Rank 0 reports the progress
// over the worker channel. If it reports nothing, the progress is read from the lines that it prints. Without either, no
// request is made. Only the agent on rank 0's node sends requests. run_plan.cpp creates this observer in a pod of Kubeflow.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>

#include "launcher/events/progress.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/hang/tool_run.hpp"
#include "launcher/kubeflow/printed_progress.hpp"
#include "launcher/kubeflow/status_body.hpp"

namespace ddprun {

class KubeflowStatusPoster final : public RunObserver {
 public:
  // `report` receives a message for the user after a failed request, unless the previous request failed for the same reason.
  KubeflowStatusPoster(boost::asio::io_context& io, std::function<void(const std::string& problem)> report)
      : io_(io), report_(std::move(report)) {}
  void on(const RunEvent& event) override;
  // Output of a worker. It is used only until rank 0 reports its progress.
  void on_output(int rank, Stream stream, std::string_view bytes);

 private:
  void on_message(const channel::FromWorker& message, std::int64_t time_ns);
  void on_data(std::int64_t time_ns);
  void post();
  void post_last();
  void note(const std::string& problem);

  boost::asio::io_context& io_;
  std::function<void(const std::string&)> report_;
  ProgressMeter meter_;
  MetricList evaluation_;
  PrintedProgress printed_;
  bool reports_ = false;      // rank 0 has reported its progress, so its output is not read
  std::int64_t time_ns_ = 0;  // time of the newest data
  PostSchedule schedule_;
  std::unique_ptr<ToolRun> request_;
  std::string last_problem_;
};

}  // namespace ddprun
