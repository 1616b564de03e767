// Text for events among the nodes of a job. Pure; console.cpp and report.cpp use it.
#pragma once

#include <string>

#include "rendezvous/protocol/link.hpp"

namespace ddprun {

// A line for people; empty for an event that needs none.
std::string notice_line(const rendezvous::NodeNotice& notice);

// A keyword for programs: "joined", "lost".
const char* notice_word(rendezvous::NodeNotice::Kind kind);

}  // namespace ddprun
