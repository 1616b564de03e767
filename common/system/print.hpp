// Writes requested output to stdout: the result of a subcommand, --help, a dry run. The subcommands, main() and
// start_training.cpp call it. It is not used for the output of workers and of a job's console.
#pragma once

#include <string>

namespace ddprun {

// Writes all of `text`. A reader that has closed its end is not an error. Throws InternalError if the disk is full.
void print(const std::string& text);

// The same for output that may be endless or very long: if the reader has closed its end, the process exits with 0.
void print_while_read(const std::string& text);

}  // namespace ddprun
