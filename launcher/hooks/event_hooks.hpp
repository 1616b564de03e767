// Runs the commands of --on-failure and --on-checkpoint. The class observes the agent's events; launcher/launch/run_plan.cpp
// creates it. It starts a shell for each command, and the job does not wait for the shell. For each option, one command runs
// at a time and at most one waits: a newer event replaces the waiting one. A command counts as running until all processes
// that it has started have ended. A command that runs too long is killed with its process group. When the agent dies, all
// processes of the commands are killed.
//
// A command's stdin is /dev/null, and its output goes to stderr. It gets ddprun's environment without secrets, DDPRUN_EVENT,
// and the variables that docs/command-line.md lists.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "launcher/events/run_event.hpp"

namespace ddprun {

class EventHooks : public RunObserver {
 public:
  struct Settings {
    std::string on_failure{};     // may be empty
    std::string on_checkpoint{};  // may be empty
    std::string run_dir{};        // may be empty
    std::chrono::milliseconds end_timeout{30000};
    std::chrono::milliseconds command_timeout{std::chrono::minutes(10)};
  };
  // `notify` is called with each message for the user.
  EventHooks(boost::asio::io_context& io, Settings settings, std::function<void(const std::string&)> notify);
  void on(const RunEvent& event) override;
  // Waits until running and queued commands have ended, but only for a limited time. Call this when the job has ended, before
  // the agent waits for the guardian, because afterwards the agent kills all its remaining descendants.
  void finish();

 private:
  using Variables = std::vector<std::pair<std::string, std::string>>;
  struct Kind {
    std::string option;
    std::string command;
    int pid = 0;  // 0: no command runs
    std::unique_ptr<boost::asio::posix::stream_descriptor> end{};
    boost::asio::steady_timer limit;
    std::optional<Variables> next{};
  };

  void handle(const RoundFailed& failed);
  void handle(const channel::CheckpointPublished& published, int rank);
  void submit(Kind& kind, Variables variables);
  void start(Kind& kind, const Variables& variables);
  void watch(Kind& kind);
  void ended(Kind& kind);

  boost::asio::io_context& io_;
  Settings settings_;
  std::function<void(const std::string&)> notify_;
  Kind failure_;
  Kind checkpoint_;
  std::string newest_checkpoint_;  // newest reported path, since several ranks may report the same checkpoint
};

}  // namespace ddprun
