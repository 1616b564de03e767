// Writes what was asked for to stdout: the answer of a subcommand, --help, a dry run. Called by the subcommands, by main() and
// by start_training.cpp. Workers' output and the console of a job never come through here.
#pragma once

#include <string>

namespace ddprun {

// Writes all of it. A reader that went away is no error. Throws InternalError when the disk is full.
void print(const std::string& text);

}  // namespace ddprun
