// Completes a run's report if the agent could not. It is the last thing that guardian.cpp does after the agent was killed.
#pragma once

#include <filesystem>

namespace ddprun::guardian {

// If the report has no exit yet, adds {"code": 137, "why": "the agent was killed"}. `newest` is a descriptor of the agent's
// newest text, which may not have reached the disk; -1: only the file on disk exists. A report that can't be read or written is
// left as it is, since the error can no longer be reported.
void complete_report(const std::filesystem::path& report, int newest) noexcept;

}  // namespace ddprun::guardian
