// Connects StragglerState (launcher/stragglers/straggler_state.hpp) to the system. Each time a worker reports its step times,
// StragglerMonitor reads the worker's kernel counters. It passes the step times and the counters to StragglerState. It
// publishes the stragglers that StragglerState finds. launcher/launch/run_plan.cpp registers it as an observer of the agent's
// events. It does nothing if no worker reports step times.
//
// An example: rank 1 reports steps 11 to 15, which took 300 ms without waiting for other ranks. Since its previous report, its
// main thread ran for 100 ms. For 195 ms, it was ready to run but had no processor. So each of the five steps gets 39 ms of
// waiting for a processor. If the other ranks need 20 ms for a step, StragglerState finds rank 1 with the kind kProcessor.
//
// In a multi-node job, each node collects the reports of the ranks that it runs. Only the node of rank 0 searches for
// stragglers. Each time one of its ranks has reported, this node queries the other nodes for their reports, with a minimum
// interval between queries.
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

#include "launcher/events/round_model.hpp"
#include "launcher/events/run_event.hpp"
#include "launcher/stragglers/process_load.hpp"
#include "launcher/stragglers/straggler_state.hpp"
#include "launcher/stragglers/worker_links.hpp"

namespace ddprun {

class StragglerMonitor : public RunObserver {
 public:
  using Publish = std::function<void(const Straggler&)>;
  struct System {
    std::function<ProcessLoad(pid_t)> load = load_of_process;
    std::function<bool(pid_t)> waits_for_disk = ddprun::waits_for_disk;
  };
  // `publish` must be asynchronous: it must emit the event only after the current call to on() has returned.
  // `round` must observe each event before this object does.
  StragglerMonitor(boost::asio::io_context& io, Publish publish, System system, const RoundModel& round)
      : timer_(io), round_(round), publish_(std::move(publish)), system_(std::move(system)) {}
  void on(const RunEvent& event) override;

  // ---- for a job on several nodes ----

  // `query` must send a query to all nodes and pass each answer to receive(). It must then call finish_query(), even if some
  // nodes have not answered.
  void set_query(std::function<void()> query) { query_ = std::move(query); }
  void finish_query() { query_pending_ = false; }
  // Returns the reports and connections of this node's ranks since the last call, as JSON text with at most about `max_bytes`
  // bytes.
  nlohmann::json take_reports(std::size_t max_bytes);
  // Processes the result of take_reports() on another node.
  void receive(const nlohmann::json& answer);

 private:
  using Clock = std::chrono::steady_clock;
  // The last readings of a worker's counters.
  struct Readings {
    double stopped_s = 0;  // time for which the worker was stopped since its last report
    std::optional<ProcessLoad> load{};
    Clock::time_point links_read{};
  };
  void begin(const RoundStarted& round);
  void on_pace(int rank, const channel::Pace& pace);
  void judge();
  void sample_suspect();
  void report_suspect();
  void read_links(int rank, pid_t pid);
  void query_periodically();

  // A straggler on this node that sleeps, perhaps because it waits for a disk. Its process is sampled before it is reported.
  struct Suspect {
    StragglerState::Finding finding;
    int samples = 0;
    int at_disk = 0;
  };

  boost::asio::steady_timer timer_;
  const RoundModel& round_;
  Publish publish_;
  System system_;
  std::optional<Suspect> suspect_;
  std::function<void()> query_;
  StragglerState state_;
  std::map<int, Readings> readings_;            // key: rank of a worker on this node
  std::vector<RankPace> unsent_reports_;        // reports that rank 0's node has not fetched yet
  std::map<int, std::vector<RankLink>> links_;  // links that rank 0's node has not fetched yet, by rank
  bool query_pending_ = false;
  Clock::time_point last_query_{};
};

}  // namespace ddprun
