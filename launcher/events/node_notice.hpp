// Texts for events such as "a node has joined" or "a node is lost". Pure; console.cpp and report_document.cpp use it.
#pragma once

#include <string>

#include "rendezvous/protocol/link.hpp"

namespace ddprun {

// A line for users; empty for an event that needs none.
std::string notice_line(const rendezvous::NodeNotice& notice);

// A keyword for programs: "joined", "lost".
const char* notice_keyword(rendezvous::NodeNotice::Kind kind);

}  // namespace ddprun
