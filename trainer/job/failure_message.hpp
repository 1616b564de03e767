// Reports the error that ends this worker process to the agent. trainer/life and trainer/library call send_failure() just
// before the process exits.
#pragma once

#include <string>

#include "common/channel/message.hpp"
#include "trainer/failure/failure.hpp"
#include "trainer/surroundings/agent_channel.hpp"
#include "trainer/surroundings/status.hpp"

namespace ddprun::trainer {

// `device` is empty if the worker has no device yet.
void send_failure(AgentChannel& agent, const Failure& failure, const Status& status, const std::string& device,
                  channel::Shrink shrinking = channel::Shrink::kNothingKnown);

}  // namespace ddprun::trainer
