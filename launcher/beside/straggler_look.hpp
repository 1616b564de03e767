// The system side of StragglerState (launcher/decide/straggler_state.hpp). It reads a worker's counters whenever the worker
// reports its step times, and publishes the findings of StragglerState. It is an observer of the agent's events, made by
// launcher/start/run_plan.cpp. If no worker reports step times, it does nothing.
//
// On several nodes the instance on rank 0's node judges. It queries the other nodes for the reports of their ranks, each time
// its own ranks have reported.
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
  // `publish` must be asynchronous: it publishes after the current call of on() has returned.
  StragglerLook(boost::asio::io_context& io, Publish publish, System system)
      : timer_(io), publish_(std::move(publish)), system_(std::move(system)) {}
  void on(const RunEvent& event) override;

  // ---- for a job on several nodes ----
  // `ask` sends a query to all nodes. Their answers are passed to hear(). Then finish_asking() is called, even if some nodes
  // have not answered.
  void asks_by(std::function<void()> ask) { ask_ = std::move(ask); }
  void finish_asking() { asking_ = false; }
  // The reports of this node's ranks since the last call, and their connections, as JSON of at most about `most_bytes` bytes.
  nlohmann::json told(std::size_t most_bytes);
  // Takes the result of told() from another node.
  void hear(const nlohmann::json& answer);

 private:
  using Clock = std::chrono::steady_clock;
  struct Worker {
    pid_t pid = 0;
    double stopped_s = 0;  // since its last report
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

  // A straggler of this node that sleeps, perhaps because of a disk. Its process is sampled for a while before it is reported.
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
  std::map<int, Worker> workers_;               // workers of this node, by rank
  std::vector<RankPace> not_asked_for_;         // reports that rank 0's node has not queried yet
  std::map<int, std::vector<RankLink>> links_;  // the same for links, by rank
  bool asking_ = false;
  Clock::time_point asked_{};
};

}  // namespace ddprun
