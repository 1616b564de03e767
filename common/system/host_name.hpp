// This machine's name, as gethostname(2) says it. Called by whoever writes it into environments, files or the rendezvous.
#pragma once

#include <string>

namespace ddprun {

// With its domain, as the resolver knows it; host_name() where it knows none. May ask the network.
std::string full_host_name();

// Never empty: "localhost" where the machine has none. Any thread.
std::string host_name();

}  // namespace ddprun
