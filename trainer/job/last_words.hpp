// What the agent hears of the error that ends this process: trainer/life and trainer/library tell it on the way out.
#pragma once

#include <string>

#include "common/channel/message.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/status.hpp"

namespace ddprun::trainer {

// `device`: empty while none is in use.
void tell_failure(AgentChannel& agent, const Failure& failure, const Status& status, const std::string& device,
                  channel::Shrink shrinking = channel::Shrink::kNothingKnown);

}  // namespace ddprun::trainer
