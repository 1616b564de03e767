// The part of StragglerState (launcher/decide/straggler_state.hpp) that touches the system: it looks at a worker's process
// whenever the worker tells how long its steps took, and publishes what StragglerState finds. An observer of the agent's
// events, made by launcher/start/run_plan.cpp. Without such workers it does nothing.
//
// On several nodes that of rank 0 judges. It asks the others what their ranks have told, each time its own have told something.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "launcher/beside/process_load.hpp"
#include "launcher/beside/worker_links.hpp"
#include "launcher/decide/straggler_state.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

class StragglerLook : public RunObserver {
 public:
  using Publish = std::function<void(const Straggler&)>;
  // `publish` does so after the call of on() that it is called in.
  explicit StragglerLook(Publish publish, std::function<ProcessLoad(pid_t)> load = load_of_process)
      : publish_(std::move(publish)), load_(std::move(load)) {}
  void on(const RunEvent& event) override;

  // ---- of a job on several nodes ----
  // `ask` puts a question to all nodes. Their answers come to hear(), then finish_asking() is called, whoever has answered.
  void asks_by(std::function<void()> ask) { ask_ = std::move(ask); }
  void finish_asking() { asking_ = false; }
  // What this node's ranks have told since the last call, and their connections, in about so many bytes of JSON at most.
  nlohmann::json told(std::size_t most_bytes);
  // What told() of another node has given.
  void hear(const nlohmann::json& answer);

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    pid_t pid = 0;
    double stopped_s = 0;  // since it told something
    std::optional<ProcessLoad> load{};
    Clock::time_point links_seen{};
  };
  void begin(const RoundStarted& round);
  void look(int rank, const channel::Pace& pace);
  void judge();
  void see_links(int rank, pid_t pid);
  void ask_now_and_then();

  Publish publish_;
  std::function<ProcessLoad(pid_t)> load_;
  std::function<void()> ask_;
  StragglerState state_;
  RoundStarted round_{};
  std::map<int, Worker> workers_;               // of this node, by rank
  std::vector<RankPace> not_asked_for_;         // of another node than rank 0's
  std::map<int, std::vector<RankLink>> links_;  // likewise, by rank
  bool asking_ = false;
  Clock::time_point asked_{};
};

}  // namespace ddprun
