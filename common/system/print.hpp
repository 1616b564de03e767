// Writes to stdout the output that the user has requested: the result of a subcommand, --help, or a dry run. The subcommands,
// main() and start_training.cpp call these functions. The output of workers and the console of a job are written in other
// ways.
#pragma once

#include <string>

namespace ddprun {

// Writes all of `text`. It is not an error if the reader has closed its end of a pipe. Throws InternalError if the disk is
// full.
void print(const std::string& text);

// Writes like print(), for output that may be very long or never end: if the reader has closed its end, the process exits with
// code 0.
void print_while_read(const std::string& text);

}  // namespace ddprun
