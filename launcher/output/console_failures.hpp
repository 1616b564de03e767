// Text about a failed round of a script: the rank that failed, ranks that exited earlier, and a summary. The summary has the
// form that torchrun users and their tools parse (`train.py FAILED`, `exitcode  : -11 (pid: 7)`, ...). Pure; console.cpp prints
// the text.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/events/run_event.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// "then rank 2: signal 6 (SIGABRT)"
std::string consequence_line(const Failure& failure);

// A line about ranks that exited with code 0 before the failure; empty if there are none. `left`: exit time of every rank that
// exited with code 0.
std::vector<std::string> early_leavers(const std::map<int, std::int64_t>& left, const Failure& first);

// Whether a Python script failed because its standard input was at end of file.
bool read_past_the_end(const Failure& failure);

// The summary block with borders, without a final '\n'. Entry [0] is the root cause. Ranks that failed only because we stopped
// them appear only if the plan is verbose.
std::string failure_summary(const Plan& plan, const RoundFailed& event);

}  // namespace ddprun
