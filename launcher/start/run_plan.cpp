// Implementation of run_plan.hpp. The report is opened before the guardian is forked. The console is created once the agent has
// its io_context.
#include "launcher/start/run_plan.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/beside/event_commands.hpp"
#include "launcher/beside/straggler_look.hpp"
#include "launcher/report/script_figures.hpp"
#include "launcher/start/answering_status.hpp"

namespace ddprun {

namespace {

void say_unwritten(ConsoleWriter& console, const std::filesystem::path& report, const std::string& why) {
  console.line(Stream::kStderr, "ddprun: how this run ended could not be written to " + report.string() + ": " + why +
                                    "; what that file says is of before");
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
                                                                        say_unwritten(*console, files.report, why);
                                                                    },
                                                                .of_script = plan.kind != Plan::Kind::kTrain});
    if (!report->warning().empty()) facts.opening.push_back("note: " + report->warning());
  }
  facts.report = files.report;
  EventCommands* commands = nullptr;
  const MakeObservers make_observers = [&](const AgentAccess& agent) {
    console = &agent.console;
    std::vector<std::unique_ptr<RunObserver>> observers;
    observers.push_back(std::make_unique<Console>(plan, std::move(facts), agent.console));
    if (report) {
      report->write_behind(agent.files, agent.keep_report, [&io = agent.io](std::function<void()> act) {
        const auto moment = std::make_shared<boost::asio::steady_timer>(io, std::chrono::milliseconds(100));
        moment->async_wait([moment, act = std::move(act)](const boost::system::error_code& error) {
          if (!error) act();
        });
      });
      observers.push_back(std::move(report));
    }
    const auto say = [&writer = agent.console](const std::string& text) { writer.line(Stream::kStderr, "ddprun: " + text); };
    if (plan.kind != Plan::Kind::kTrain && !plan.run_dir.empty()) {
      observers.push_back(std::make_unique<ScriptFigures>(plan.run_dir, agent.files, say));
    }
    if (!plan.on_failure.empty() || !plan.on_checkpoint.empty()) {
      const EventCommands::Settings settings{.on_failure = plan.on_failure,
                                             .on_checkpoint = plan.on_checkpoint,
                                             .run_dir = plan.run_dir.string(),
                                             .at_the_end = plan.shutdown_timeout};
      commands =
          static_cast<EventCommands*>(observers.emplace_back(std::make_unique<EventCommands>(agent.io, settings, say)).get());
    }
    const auto publish_later = [&io = agent.io, publish = agent.publish](const Straggler& finding) {
      boost::asio::post(io, [publish, finding] { publish(finding); });
    };
    auto stragglers = std::make_unique<StragglerLook>(agent.io, publish_later, StragglerLook::System{});
    observers.push_back(std::make_unique<AnsweringStatus>(plan, files, agent, *stragglers));
    observers.push_back(std::move(stragglers));
    return observers;
  };
  return run_agent(plan, files, make_observers, std::move(network), [&](int exit_code) {
    if (commands != nullptr) commands->finish();
    if (at_end) at_end(exit_code);
  });
}

}  // namespace ddprun
