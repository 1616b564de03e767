// Reads torchrun's output options into an OutputPlan: redirects, tee, filters and prefix. plan.cpp calls it. The code is pure:
// no I/O, no clock.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/output_plan.hpp"
#include "launcher/plan/plan.hpp"

namespace ddprun {

// Reads torchrun's output options into plan.output and records their sources. With a train.json it only adds notes that they
// have no effect. Throws UsageError.
void choose_output(Plan& plan, const Settings& settings);

// Parses "3" (all local ranks) or "0:1,1:2" (only these local ranks). The UsageError for an invalid value names the option.
StreamsByRank parse_streams(std::string_view option, const Setting& setting);

// Parses a list of local ranks such as "0,1,2". The UsageError for an invalid value names the option.
std::set<int> parse_local_ranks(std::string_view option, const Setting& setting);

// Splits the text at commas: "a,b" gives two filters. ",," stands for a comma inside a filter.
std::vector<std::string> parse_filters(std::string_view text);

}  // namespace ddprun
