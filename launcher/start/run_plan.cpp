// Implementation of run_plan.hpp. The report is opened before the guardian is forked; the console is made once the agent has
// its io_context.
#include "launcher/start/run_plan.hpp"

#include <memory>
#include <utility>
#include <vector>

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
                                                                .unwritten = [&](const std::string& why) {
                                                                  if (console != nullptr)
                                                                    say_unwritten(*console, files.report, why);
                                                                }});
    if (!report->warning().empty()) facts.opening.push_back("note: " + report->warning());
  }
  facts.report = files.report;
  const MakeObservers make_observers = [&](ConsoleWriter& writer, const ReportKeeping& keeping) {
    console = &writer;
    std::vector<std::unique_ptr<RunObserver>> observers;
    observers.push_back(std::make_unique<Console>(plan, std::move(facts), writer));
    if (report) {
      report->write_behind(keeping.files, keeping.keep);
      observers.push_back(std::move(report));
    }
    return observers;
  };
  return run_agent(plan, files, make_observers, std::move(network), at_end);
}

}  // namespace ddprun
