// This machine's name from gethostname(2), for environments, files and the rendezvous.
#pragma once

#include <string>

namespace ddprun {

// The name with its domain, from the resolver; host_name() if the resolver does not know it. May use the network.
std::string full_host_name();

// The name; "localhost" if the machine has none, so it is never empty. Any thread.
std::string host_name();
// The name as one component of a path: '/', control characters, spaces and a leading dot are written as %xx.
std::string host_file_name();

}  // namespace ddprun
