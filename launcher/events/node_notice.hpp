// Builds the texts of events such as "a node has joined" or "a node is lost". The code is pure; console.cpp and
// report_document.cpp use it.
#pragma once

#include <string>

#include "rendezvous/protocol/link.hpp"

namespace ddprun {

// Returns a line for users. The line is empty if users need not see the event.
std::string notice_line(const rendezvous::NodeNotice& notice);

// Returns a keyword for programs that read the events, such as "joined" or "lost".
const char* notice_keyword(rendezvous::NodeNotice::Kind kind);

}  // namespace ddprun
