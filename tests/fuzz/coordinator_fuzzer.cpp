// Sends arbitrary messages of nodes to a rendezvous coordinator, at arbitrary times. The coordinator must never crash, and
// never give the same group rank of a round to two nodes. Until the coordinator steps down, it must always have a next
// deadline.
#include <cstdlib>
#include <set>

#include "rendezvous/coordinator/coordinator.hpp"
#include "rendezvous/wire/codec.hpp"
#include "tests/fuzz/steps.hpp"

using namespace ddprun::rendezvous;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  CoordinatorSettings settings;
  settings.self = {1};
  settings.min_nodes = 2;
  settings.max_nodes = 4;
  settings.judge = [](const FailureReport&, const Budget& before) {
    Verdict verdict;
    verdict.restart = before.history.used < 3;
    verdict.after = before;
    ++verdict.after.history.used;
    return verdict;
  };
  Now now{Time(std::chrono::hours(1)), 0};
  Coordinator coordinator(settings, Authority{}, now);
  std::set<std::pair<RoundId, std::int32_t>> given;
  bool over = false;
  const auto check = [&](const std::vector<CoordinatorAction>& actions) {
    for (const CoordinatorAction& action : actions) {
      if (const auto* send = std::get_if<node_action::ToDialler>(&action)) {
        const std::string frame = encode(send->message);
        if (frame.size() > 8192) std::abort();
        const auto* release = std::get_if<Release>(&send->message);
        if (release != nullptr && release->start && !given.insert({release->id, release->group_rank}).second) std::abort();
      }
      over = over || std::holds_alternative<coordinator_action::StepDown>(action);
    }
  };
  Hello own;
  own.node = settings.self;
  check(coordinator.on(node_event::LinkOpened{kSelfLink}, now));
  check(coordinator.on(node_event::FromDialler{kSelfLink, own}, now));
  Script script(data, size);
  Step step;
  std::set<LinkId> open;
  for (int i = 0; i < 200 && !over && script.next(step); ++i) {
    now.steady += step.pause;
    now.realtime_ns += step.pause.count() * 1000000;
    switch (step.kind) {
      case Step::Kind::kOpen:
        if (open.insert(step.link).second) check(coordinator.on(node_event::LinkOpened{step.link}, now));
        break;
      case Step::Kind::kClose:
        if (open.erase(step.link) > 0) check(coordinator.on(node_event::LinkClosed{step.link}, now));
        break;
      case Step::Kind::kFrame:
        try {
          check(coordinator.on(node_event::FromDialler{step.link, decode_from_member(step.frame)}, now));
        } catch (const ProtocolError&) {
        }
        break;
      case Step::Kind::kLocal:
        check(coordinator.on(node_event::FromDialler{kSelfLink, Ping{stamp_of(now.steady), 0, 0, coordinator.round()}}, now));
        break;
      case Step::Kind::kTick:
        check(coordinator.on(node_event::Tick{}, now));
        break;
    }
    if (!over && !coordinator.next_deadline()) std::abort();
  }
  return 0;
}
