// Reads the facts about names and interfaces. A lookup of a name may take long, so each name has its own probe.
#pragma once

#include <string>

#include "launcher/doctor/verdicts/judge_network.hpp"

namespace ddprun::doctor {

NameFacts observe_name(const std::string& name);  // queries the resolver
InterfaceFacts observe_interfaces();

}  // namespace ddprun::doctor
