// Implementation of run_plan.hpp. The report is opened before the guardian is forked. The console is created after the agent
// has created its io_context.
#include "launcher/launch/run_plan.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/system/host_name.hpp"
#include "common/system/realtime.hpp"
#include "common/system/state_folder.hpp"
#include "launcher/hooks/event_hooks.hpp"
#include "launcher/node_history/history_file.hpp"
#include "launcher/node_history/history_observer.hpp"
#include "launcher/options/parse_number.hpp"
#include "launcher/query/cluster/status_service.hpp"
#include "launcher/report/script_metrics.hpp"
#include "launcher/scheduler_status/progress_poster.hpp"
#include "launcher/stragglers/straggler_monitor.hpp"
#include "launcher/submit/slurm/slurm_job.hpp"

namespace ddprun {

namespace {

std::optional<SlurmStart> slurm_start(const Environment& environment) {
  const auto job = slurm_job_of(environment);
  if (!job) return std::nullopt;
  const std::int64_t restarts = parse_whole(environment("SLURM_RESTART_COUNT").value_or("")).value_or(0);
  return SlurmStart{.job = *job, .restarts = static_cast<int>(std::clamp<std::int64_t>(restarts, 0, 1'000'000))};
}

void warn_unwritten(ConsoleWriter& console, const std::filesystem::path& report, const std::string& why) {
  console.line(Stream::kStderr, "ddprun: the final report could not be written to " + report.string() + ": " + why +
                                    "; the file contains an earlier state of the run");
}

// Reports nodes that failed often, and adds the failures of this job's nodes to the history. The history is written on the
// thread of the agent's files.
std::unique_ptr<NodeHistoryObserver> node_history_of(const Plan& plan, const AgentAccess& agent, const NodeHistory& history,
                                                     const std::function<void(const std::string&)>& notify) {
  const NodeFailureCollector::Job job{.several_nodes = plan.rendezvous.many(),
                                      .host = host_name(),
                                      .run = plan.run_dir.empty() ? plan.title : plan.run_dir.string()};
  const auto publish_later = [&io = agent.io, publish = agent.publish](NodesChanged event) {
    boost::asio::post(io, [publish, event = std::move(event)] { publish(event); });
  };
  const auto record = [&files = agent.files, notify](NodeHistory failures) {
    const auto problem = std::make_shared<std::string>();
    files.add(
        [problem, failures = std::move(failures)] {
          *problem = NodeHistoryFile(state_folder()).add(failures, realtime_ns() / 1'000'000'000);
        },
        [problem, notify] {
          if (!problem->empty()) notify(*problem);
        });
  };
  return std::make_unique<NodeHistoryObserver>(job, failing_nodes(history, realtime_ns() / 1'000'000'000), publish_later,
                                               record);
}

}  // namespace

int run_plan(const Plan& plan, const AgentFiles& files, ConsoleFacts facts, std::optional<NetworkStart> network,
             ReportFacts::Kept kept, const AtEnd& at_end) {
  std::unique_ptr<Report> report;
  ConsoleWriter* console = nullptr;
  if (!files.report.empty()) {
    report = std::make_unique<Report>(files.report, ReportFacts{.title = plan.title,
                                                                .run_dir = plan.run_dir.string(),
                                                                .command = plan.command,
                                                                .restart_budget = plan.max_restarts,
                                                                .refilled_by_progress = plan.refill_by_progress,
                                                                .synced = !plan.run_dir.empty(),
                                                                .kept = kept,
                                                                .unwritten =
                                                                    [&](const std::string& why) {
                                                                      if (console != nullptr)
                                                                        warn_unwritten(*console, files.report, why);
                                                                    },
                                                                .slurm = slurm_start(process_environment()),
                                                                .of_script = plan.kind != Plan::Kind::kTrain});
    if (!report->warning().empty()) facts.opening.push_back("note: " + report->warning());
  }
  facts.report = files.report;
  NodeHistoryFile::Content history = NodeHistoryFile(state_folder()).read();
  if (!history.problem.empty()) facts.opening.push_back("note: " + history.problem);
  EventHooks* commands = nullptr;
  const MakeObservers make_observers = [&](const AgentAccess& agent) {
    console = &agent.console;
    AgentObservers made;
    auto& observers = made.observers;
    auto owned_model = std::make_unique<RoundModel>();
    const RoundModel& model = *owned_model;
    observers.push_back(std::move(owned_model));  // added first, since the other observers read the model
    observers.push_back(std::make_unique<Console>(plan, std::move(facts), agent.console, model));
    std::function<std::string()> newest_report;
    if (report) {
      newest_report = [&one = *report] { return one.line(); };
      report->write_behind(agent.files, agent.keep_report, [&io = agent.io](std::function<void()> act) {
        const auto delay = std::make_shared<boost::asio::steady_timer>(io, std::chrono::milliseconds(100));
        delay->async_wait([delay, act = std::move(act)](const boost::system::error_code& error) {
          if (!error) act();
        });
      });
      observers.push_back(std::move(report));
    }
    const auto notify = [&writer = agent.console](const std::string& text) { writer.line(Stream::kStderr, "ddprun: " + text); };
    if (plan.kind != Plan::Kind::kTrain && !plan.run_dir.empty()) {
      observers.push_back(std::make_unique<ScriptMetrics>(plan.run_dir, agent.files, notify));
    }
    observers.push_back(node_history_of(plan, agent, history.history, notify));
    std::vector<ProgressPoster*> posters;
    for (ProgressPoster::Target& target : scheduler_targets(process_environment())) {
      auto poster = std::make_unique<ProgressPoster>(agent.io, std::move(target), notify);
      posters.push_back(poster.get());
      observers.push_back(std::move(poster));
    }
    if (!posters.empty()) {
      agent.tap_output([posters](int rank, Stream stream, std::string_view bytes) {
        for (ProgressPoster* const poster : posters) poster->on_output(rank, stream, bytes);
      });
    }
    if (!plan.on_failure.empty() || !plan.on_checkpoint.empty()) {
      const EventHooks::Settings settings{.on_failure = plan.on_failure,
                                          .on_checkpoint = plan.on_checkpoint,
                                          .run_dir = plan.run_dir.string(),
                                          .end_timeout = plan.shutdown_timeout};
      commands =
          static_cast<EventHooks*>(observers.emplace_back(std::make_unique<EventHooks>(agent.io, settings, notify)).get());
    }
    const auto publish_later = [&io = agent.io, publish = agent.publish](const Straggler& finding) {
      boost::asio::post(io, [publish, finding] { publish(finding); });
    };
    auto stragglers = std::make_unique<StragglerMonitor>(agent.io, publish_later, StragglerMonitor::System{}, model);
    auto status = std::make_unique<JobStatus>(plan, facts_of_job(files), model);
    made.service = std::make_shared<StatusService>(plan, files, agent, *status, *stragglers, std::move(newest_report));
    observers.push_back(std::move(status));
    observers.push_back(std::move(stragglers));
    return made;
  };
  return run_agent(plan, files, make_observers, std::move(network), [&](int exit_code) {
    if (commands != nullptr) commands->finish();
    if (at_end) at_end(exit_code);
  });
}

}  // namespace ddprun
