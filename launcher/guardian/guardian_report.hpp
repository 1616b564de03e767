// Completes the report of a job whose agent was killed. The guardian (guardian.cpp) calls it as its last step.
#pragma once

#include <filesystem>

namespace ddprun::guardian {

// Adds {"code": 137, "why": "the agent was killed"} if the report has no exit code yet. `newest` is a descriptor of the newest
// text that the agent sent, which may not be on disk yet. -1 means that only the file on disk exists. If the report cannot be
// read or written, it is not changed, since no process is left that could report the error.
void complete_report(const std::filesystem::path& report, int newest) noexcept;

}  // namespace ddprun::guardian
