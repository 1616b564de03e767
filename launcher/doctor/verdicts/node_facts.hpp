// Facts of a node that the nodes of a job compare, such as the version of LibTorch. A fact has a name and a value as text, so
// that a node can read the facts of another version of ddprun. compare_nodes.hpp lists the names.
//
// The subjects of the doctor run in child processes, which can only send checks. A fact therefore travels as a check with the
// verdict ok, whose name starts with a prefix that no real check has. The doctor removes these checks before it prints.
#pragma once

#include <map>
#include <string>

#include "launcher/doctor/verdicts/check.hpp"

namespace ddprun::doctor {

using NodeFacts = std::map<std::string, std::string>;  // values by name

// A fact in the form of a check, for run_probes().
Check fact(const std::string& name, std::string value);

// Removes the facts from `checks` and returns them.
NodeFacts take_facts(Checks& checks);

}  // namespace ddprun::doctor
