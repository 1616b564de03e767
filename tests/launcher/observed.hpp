// Combines an observer of the agent's events with a RoundModel. The model receives each event before the observer does, as in
// launcher/launch/run_plan.cpp.
#pragma once

#include <utility>

#include "launcher/events/round_model.hpp"

namespace ddprun {

struct ModelOfRound {
  RoundModel model;
};

// The constructor of `Observer` must take the RoundModel as its last argument.
template <class Observer>
class Observed : private ModelOfRound, public Observer {
 public:
  template <class... Arguments>
  explicit Observed(Arguments&&... arguments) : Observer(std::forward<Arguments>(arguments)..., model) {}
  void on(const RunEvent& event) override {
    model.on(event);
    Observer::on(event);
  }
};

}  // namespace ddprun
