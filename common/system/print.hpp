// Writes to stdout what the user asked for: the answer of a subcommand, --help, a dry run. The subcommands, main() and
// start_training.cpp call it. Output of workers and of a job's console never comes through here.
#pragma once

#include <string>

namespace ddprun {

// Writes all of `text`. A reader that has closed its end is no error. Throws InternalError when the disk is full.
void print(const std::string& text);

// The same for an answer that may have no end or be very long: when the reader has closed its end, the process ends with 0.
void print_while_read(const std::string& text);

}  // namespace ddprun
