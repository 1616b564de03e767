// Implementation of action.hpp.
#include "rendezvous/member/action.hpp"

#include "common/base/exit_code.hpp"

namespace ddprun::rendezvous {

member_action::JobOver end_of_search(const Record& record, bool was_welcome, milliseconds looked) {
  const bool belonged = was_welcome && record.state.current.exists();
  const std::string seconds = std::to_string(looked.count() / 1000) + " s";
  std::string why = (belonged ? "cut off from the majority of the nodes for " : "no coordinator answered for ") + seconds;
  if (belonged && is_other_of_two(record) && !record.state.current.has_arbiter()) {
    why +=
        ": of two nodes, this one goes on only when the other one's guardian says that the agent there is dead, or with an "
        "arbiter (--arbiter, or one --run-dir of both); with three nodes any two go on";
  }
  return {.exit_code = static_cast<int>(belonged ? ExitCode::kMinority : ExitCode::kPeersMissing),
          .why = std::move(why),
          .end = member_action::JobOver::End::kGivenUp};
}

}  // namespace ddprun::rendezvous
