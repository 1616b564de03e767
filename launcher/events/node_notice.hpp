// Texts for events such as "a node has joined" or "a node is lost". The code is pure (no I/O, no clock). Console.cpp and
// report_document.cpp use it.
#pragma once

#include <string>

#include "rendezvous/protocol/link.hpp"

namespace ddprun {

// Returns a line for users; empty for an event that needs none.
std::string notice_line(const rendezvous::NodeNotice& notice);

// Returns a keyword for programs: "joined", "lost".
const char* notice_keyword(rendezvous::NodeNotice::Kind kind);

}  // namespace ddprun
