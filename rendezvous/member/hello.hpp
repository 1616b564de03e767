// What a node says of itself in each Hello, whatever it does just then.
#pragma once

#include <string>

#include "rendezvous/member/settings.hpp"
#include "rendezvous/protocol/message.hpp"

namespace ddprun::rendezvous {

// `local_host`: this end of the connection, for a node that does not know at which address others reach it.
Hello hello_of(const MemberSettings& settings, const std::string& local_host);

}  // namespace ddprun::rendezvous
