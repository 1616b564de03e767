// Reports the error that ends this process to the agent. trainer/life and trainer/library call it just before they exit.
#pragma once

#include <string>

#include "common/channel/message.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/status.hpp"

namespace ddprun::trainer {

// `device`: empty if no device is in use.
void tell_failure(AgentChannel& agent, const Failure& failure, const Status& status, const std::string& device,
                  channel::Shrink shrinking = channel::Shrink::kNothingKnown);

}  // namespace ddprun::trainer
