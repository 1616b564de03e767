// What happens among the nodes of a job, in words. Pure; console.cpp and report.cpp use it.
#pragma once

#include <string>

#include "rendezvous/protocol/link.hpp"

namespace ddprun {

// A line for people; empty when there is nothing to say.
std::string notice_line(const rendezvous::Notice& notice);

// "joined", "lost": the word for programs.
const char* notice_word(rendezvous::Notice::Kind kind);

}  // namespace ddprun
