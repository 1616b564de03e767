// Sends arbitrary messages to a node, at arbitrary times. The senders are a rendezvous coordinator, a candidate, or any other
// node. The node must never crash. It may start workers again only after the fuzzer has reported the end of the earlier
// workers. All messages that it sends must be encodable.
#include <cstdlib>

#include "rendezvous/node/node.hpp"
#include "rendezvous/wire/codec.hpp"
#include "tests/fuzz/steps.hpp"

using namespace ddprun::rendezvous;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  NodeSettings settings;
  settings.member.node = {9};
  settings.member.listens = {"9", 1};
  settings.member.endpoints = {{"1", 1}, {"2", 1}};
  settings.leads_first = size > 0 && data[0] % 2 == 0;
  Now now{Time(std::chrono::hours(1)), 0};
  Node node(settings, {}, now);
  bool workers = false;
  bool over = false;
  const auto check = [&](const std::vector<NodeAction>& actions) {
    for (const NodeAction& action : actions) {
      if (const auto* to = std::get_if<node_action::ToListener>(&action)) (void)encode(to->message);
      if (const auto* to = std::get_if<node_action::ToDialler>(&action)) (void)encode(to->message);
      if (std::holds_alternative<member_action::StartWorkers>(action)) {
        if (workers) std::abort();
        workers = true;
      }
      if (const auto* finish = std::get_if<node_action::Finish>(&action)) {
        if (workers) std::abort();
        over = finish != nullptr;
      }
    }
  };
  check(node.on(node_event::Begin{}, now));
  Script script(data, size);
  Step step;
  for (int i = 0; i < 200 && !over && script.next(step); ++i) {
    now.steady += step.pause;
    now.realtime_ns += step.pause.count() * 1000000;
    // The node opened links 1 to 3 itself, in this order. Other nodes opened the other links.
    const bool dialled = step.link <= 3;
    const LinkId link = dialled ? kDialled | step.link : step.link;
    switch (step.kind) {
      case Step::Kind::kOpen:
        check(node.on(node_event::LinkOpened{link, "9"}, now));
        break;
      case Step::Kind::kClose:
        check(node.on(node_event::LinkClosed{link}, now));
        break;
      case Step::Kind::kFrame:
        try {
          if (dialled) {
            check(node.on(node_event::FromListener{link, decode_from_coordinator(step.frame)}, now));
          } else {
            check(node.on(node_event::FromDialler{link, decode_from_member(step.frame)}, now));
          }
        } catch (const ProtocolError&) {
        }
        break;
      case Step::Kind::kLocal:
        if (workers) {
          workers = false;
          check(node.on(node_event::Local{member_event::WorkersEnded{}}, now));
        }
        break;
      case Step::Kind::kTick:
        check(node.on(node_event::Tick{}, now));
        break;
    }
  }
  return 0;
}
