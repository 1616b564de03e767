#include "launcher/doctor/nodes/meeting_result.hpp"

#include <algorithm>
#include <utility>

#include "common/base/printable.hpp"

namespace ddprun::doctor {
namespace {

Checks joined(Checks checks, const Checks& more) {
  checks.insert(checks.end(), more.begin(), more.end());
  return checks;
}

Checks with_node(Checks checks, const std::string& node) {
  for (Check& check : checks) check.node = node;
  return checks;
}

std::string totals(int errors, int warnings) {
  return std::to_string(errors) + (errors == 1 ? " error, " : " errors, ") + std::to_string(warnings) +
         (warnings == 1 ? " warning" : " warnings");
}

}  // namespace

GroupResult result_of(const std::vector<NodeTable>& tables, const Checks& comparison, const std::string& host) {
  GroupResult result{
      .errors = count(comparison, CheckVerdict::kError), .warnings = count(comparison, CheckVerdict::kWarning), .host = host};
  for (const NodeTable& table : tables) {
    result.errors += count(table.checks, CheckVerdict::kError);
    result.warnings += count(table.checks, CheckVerdict::kWarning);
  }
  return result;
}

std::string table_of(const Meeting& meeting, const Checks& own) {
  if (!meeting.problems.empty()) return table_of(joined(own, meeting.problems));
  std::string text;
  if (meeting.result) {
    Checks findings;
    std::ranges::copy_if(own, std::back_inserter(findings), [](const Check& one) { return one.verdict != CheckVerdict::kOk; });
    return findings.empty() ? "" : table_of(findings);
  }
  for (const NodeTable& table : meeting.tables) {
    const std::string where = table.address.empty() ? "this node" : table.address;
    text += "node " + printable(table.label) + " (" + where + ")\n" + table_of(table.checks) + "\n";
  }
  return text + "all nodes\n" + table_of(meeting.comparison);
}

std::string json_lines_of(const Meeting& meeting, const Checks& own, const std::string& own_host) {
  if (!meeting.problems.empty()) return json_lines_of(with_node(joined(own, meeting.problems), own_host));
  if (meeting.result) return "";
  std::string text;
  for (const NodeTable& table : meeting.tables) text += json_lines_of(with_node(table.checks, table.label));
  return text + json_lines_of(with_node(meeting.comparison, kAllNodes));
}

std::string summary_of(const Meeting& meeting, const Checks& own, const std::string& own_host) {
  if (!meeting.result) return "";
  return own_host + ": " + totals(count(own, CheckVerdict::kError), count(own, CheckVerdict::kWarning)) +
         " on this node; on all nodes: " + totals(meeting.result->errors, meeting.result->warnings) + ". The doctor on " +
         meeting.result->host + " prints the tables of all nodes";
}

int exit_code_of(const Meeting& meeting, const Checks& own) {
  if (!meeting.problems.empty()) return exit_code_of(joined(own, meeting.problems));
  const GroupResult result = meeting.result ? *meeting.result : result_of(meeting.tables, meeting.comparison, "");
  return result.errors > 0 ? 1 : 0;
}

}  // namespace ddprun::doctor
