// What is said of a failed round of a script: who failed, who had left before, and a summary in the form that torchrun's users
// and their tools know (`train.py FAILED`, `exitcode  : -11 (pid: 7)`, ...). Pure; console.cpp prints it.
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

// `left`: ranks that ended with exit code 0, and when. Of those that did so before the failure: one line, or none.
std::vector<std::string> early_leavers(const std::map<int, std::int64_t>& left, const Failure& first);

// The block with borders, without a last '\n'. The root cause is [0]; failures that are only our stopping of the others are
// left out unless the plan is verbose.
std::string failure_summary(const Plan& plan, const RoundFailed& event);

}  // namespace ddprun
