// Completes a run's report when the agent could not. It is the last thing that guardian.cpp does after the agent was killed.
#pragma once

#include <filesystem>

namespace ddprun::guardian {

// If the report is there and has no exit yet, adds {"code": 137, "why": "the agent was killed"}. A report that can't be read or
// written is left as it is: nobody is there any more to be told.
void complete_report(const std::filesystem::path& report) noexcept;

}  // namespace ddprun::guardian
