#include "launcher/hang/hang_monitor.hpp"

#include <utility>

#include "launcher/hang/process_summary.hpp"
#include "launcher/leftovers/stuck_workers.hpp"

namespace ddprun {

HangMonitor::HangMonitor(boost::asio::io_context& io, HangSettings settings, Agent& agent)
    : io_(io), python_(settings.python), agent_(agent), state_(settings), timer_(io) {}

HangView HangMonitor::read_view() const {
  HangView view{.matters = agent_.progress_matters()};
  for (const pid_t pid : agent_.worker_pids())
    view.workers.push_back({.pid = pid, .state = pid > 0 ? process_state(pid) : '\0'});
  view.bytes_in_files = agent_.bytes_in_files();
  return view;
}

void HangMonitor::carry_out(const HangState::Actions& actions) {
  for (const HangAction& action : actions) std::visit([this](const auto& one) { carry_out(one); }, action);
}

void HangMonitor::carry_out(const hang_action::SetTimer& action) {
  timer_.expires_at(action.at);
  timer_.async_wait([this, number = ++timer_number_](const boost::system::error_code& error) {
    if (!error && number == timer_number_) carry_out(state_.timer_fired(read_view(), Clock::now()));
  });
}

void HangMonitor::carry_out(const hang_action::CancelTimer&) {
  ++timer_number_;
  timer_.cancel();
}

void HangMonitor::carry_out(const hang_action::ReadStack& action) {
  if (!tool_) tool_ = agent_.find_tool(python_);
  if (!tool_ || tool_->name.empty()) return carry_out(state_.cannot_read_stacks());
  stack_run_ = std::make_unique<StackRun>(io_, *tool_, action.pid, action.at_most, [this](std::vector<std::string> frames) {
    carry_out(state_.stack_read(std::move(frames), Clock::now()));
  });
}

void HangMonitor::carry_out(const hang_action::ReportHang& action) {
  stack_run_.reset();
  std::vector<HangFinding> findings;
  for (const hang_action::ReportHang::Finding& found : action.findings) {
    HangFinding finding{.rank = found.rank, .blame = found.blame, .evidence = {found.where + process_summary(found.pid)}};
    for (const std::string& frame : found.stack) finding.evidence.push_back("  " + frame);
    findings.push_back(std::move(finding));
  }
  agent_.report_hang(std::move(findings));
}

}  // namespace ddprun
