// Implementation of hang_inquiry.hpp.
#include "launcher/hang/hang_inquiry.hpp"

#include <utility>

#include "launcher/hang/process_summary.hpp"
#include "launcher/workers/stuck_workers.hpp"

namespace ddprun {

HangInquiry::HangInquiry(boost::asio::io_context& io, HangSettings settings, Hooks hooks)
    : io_(io), python_(settings.python), hooks_(std::move(hooks)), state_(settings), timer_(io) {}

HangView HangInquiry::look() const {
  HangView view{.matters = hooks_.matters()};
  for (const pid_t pid : hooks_.workers()) view.workers.push_back({.pid = pid, .state = pid > 0 ? process_state(pid) : '\0'});
  if (hooks_.bytes_in_files) {
    view.files_count = true;
    view.bytes_in_files = hooks_.bytes_in_files();
  }
  return view;
}

void HangInquiry::carry_out(const HangState::Actions& actions) {
  for (const HangAction& action : actions) std::visit([this](const auto& one) { carry_out(one); }, action);
}

void HangInquiry::carry_out(const hang_action::SetTimer& action) {
  timer_.expires_at(action.at);
  timer_.async_wait([this, number = ++timer_number_](const boost::system::error_code& error) {
    if (!error && number == timer_number_) carry_out(state_.timer_fired(look(), Clock::now()));
  });
}

void HangInquiry::carry_out(const hang_action::CancelTimer&) {
  ++timer_number_;
  timer_.cancel();
}

void HangInquiry::carry_out(const hang_action::ReadStack& action) {
  if (!tool_) tool_ = hooks_.find_tool ? hooks_.find_tool(python_) : find_stack_tool(python_);
  if (!tool_ || tool_->name.empty()) return carry_out(state_.cannot_read_stacks());
  stack_run_ = std::make_unique<StackRun>(io_, *tool_, action.pid, action.at_most, [this](std::vector<std::string> frames) {
    carry_out(state_.stack_read(std::move(frames), Clock::now()));
  });
}

void HangInquiry::carry_out(const hang_action::Tell& action) {
  stack_run_.reset();
  std::vector<HangFinding> findings;
  for (const hang_action::Tell::Finding& found : action.findings) {
    HangFinding finding{.rank = found.rank, .blame = found.blame, .evidence = {found.where + process_summary(found.pid)}};
    for (const std::string& frame : found.stack) finding.evidence.push_back("  " + frame);
    findings.push_back(std::move(finding));
  }
  hooks_.found(std::move(findings));
}

}  // namespace ddprun
