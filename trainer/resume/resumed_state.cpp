#include "trainer/resume/resumed_state.hpp"

#include <nlohmann/json.hpp>

#include "trainer/checkpoint/checkpoint.hpp"
#include "trainer/state/state_sharing.hpp"

namespace ddprun::trainer {

Resumed resume_state(TrainingState& state, StateOrigin& origin, const ResumeFrom& from, const TrainConfig& config,
                     const RunLength& length, const Peers& peers) {
  Resumed own;
  if (from.path) {
    CheckpointState read;
    if (!from.saved) read = load_checkpoint(*from.path);
    const CheckpointState& saved = from.saved ? *from.saved : read;
    restore(state, saved, config, length, *from.path);
    origin = StateOrigin::kCheckpoint;
    own = {.path = from.path->string(),
           .differences = rounding_differences(saved, state, config, peers.world()),
           .planned = saved.total_steps};
  }
  share_state(state, origin, peers);
  origin = StateOrigin::kCheckpoint;  // share_state() has changed `origin` to kSurvivors
  const std::string text =
      nlohmann::json{own.path, own.differences, own.planned}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const auto firsts = nlohmann::json::parse(peers.from(from.holders.front(), text));
  return {.path = firsts.at(0).get<std::string>(),
          .differences = firsts.at(1).get<std::string>(),
          .planned = firsts.at(2).get<std::int64_t>()};
}

}  // namespace ddprun::trainer
