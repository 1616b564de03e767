// This machine's name, as gethostname(2) has it, for environments, files and the rendezvous.
#pragma once

#include <string>

namespace ddprun {

// The name with its domain, as the resolver knows it; host_name() when it knows none. May ask the network.
std::string full_host_name();

// The name; "localhost" when the machine has none, so it is never empty. Any thread.
std::string host_name();
// The name as one component of a path: '/', control characters, spaces and a first dot are written as %xx.
std::string host_file_name();

}  // namespace ddprun
