// Reads torchrun's output options into an OutputPlan: redirects, tee, filters, prefix. plan.cpp calls it for scripts, modules
// and programs. Pure.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/options/options.hpp"
#include "launcher/plan/output_plan.hpp"

namespace ddprun {

struct OutputChoice {
  OutputPlan plan;
  std::vector<std::string> notes;  // notes about options for local ranks that do not exist
};

// Throws UsageError.
OutputChoice resolve_output(const Settings& settings, int workers);

// "3" for all local ranks, "0:1,1:2" for some. Throws UsageError naming the option.
StreamsByRank parse_streams(std::string_view option, const Setting& setting);

// "0,1,2". Throws UsageError.
std::set<int> parse_local_ranks(std::string_view option, const Setting& setting);

// "a,b" means two filters; ",," is a literal comma.
std::vector<std::string> parse_filters(std::string_view text);

}  // namespace ddprun
