// The text about a failed round of a script: which rank failed, which had left before, and a summary in the form that
// torchrun's users and their tools know (`train.py FAILED`, `exitcode  : -11 (pid: 7)`, ...). Pure; console.cpp prints it.
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

// A line about ranks that exited with code 0 before the failure, or no line. `left`: all ranks that exited with code 0, and
// when.
std::vector<std::string> early_leavers(const std::map<int, std::int64_t>& left, const Failure& first);

// Whether a Python script failed because its standard input was at its end.
bool read_past_the_end(const Failure& failure);

// The block with borders, without a last '\n'. Entry [0] is the root cause. Ranks that only failed because we stopped them are
// left out, unless the plan is verbose.
std::string failure_summary(const Plan& plan, const RoundFailed& event);

}  // namespace ddprun
