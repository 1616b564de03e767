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

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json_fwd.hpp>

#include "launcher/beside/process_load.hpp"
#include "launcher/beside/worker_links.hpp"
#include "launcher/decide/straggler_state.hpp"
#include "launcher/events/run_event.hpp"

namespace ddprun {

class StragglerLook : public RunObserver {
 public:
  using Publish = std::function<void(const Straggler&)>;
  struct System {
    std::function<ProcessLoad(pid_t)> load = load_of_process;
    std::function<bool(pid_t)> waits_for_disk = ddprun::waits_for_disk;
  };
  // `publish` does so after the call of on() that it is called in.
  StragglerLook(boost::asio::io_context& io, Publish publish, System system)
      : timer_(io), publish_(std::move(publish)), system_(std::move(system)) {}
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
  void look_closer();
  void name_suspect();
  void see_links(int rank, pid_t pid);
  void ask_now_and_then();

  // A straggler of this node that sleeps: a disk may be why. Looked at for a while before it is named.
  struct Suspect {
    StragglerState::Finding finding;
    int looks = 0;
    int at_disk = 0;
  };

  boost::asio::steady_timer timer_;
  Publish publish_;
  System system_;
  std::optional<Suspect> suspect_;
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
