// This machine's name, for environment variables, files and the rendezvous.
#pragma once

#include <string>

namespace ddprun {

// Returns the name with its domain, from the resolver. If the resolver does not have the name, returns host_name(). The call
// may block, because it may use the network.
std::string full_host_name();

// Returns the name from gethostname(2); "localhost" if the machine has none, so the result is never empty. Any thread may call
// it.
std::string host_name();
// Returns host_name() as one component of a path: '/', '%', control characters, spaces and a leading dot are replaced by %xx.
std::string host_file_name();

}  // namespace ddprun
