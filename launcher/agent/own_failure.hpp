// Handles every exception in the agent: a failed check of ours, an error of the system or of a library, no memory. The first
// one is fed to AgentState, so that the workers stop before the job ends with the error's code, or else 89. On one machine the
// workers save first. On many machines they need not, since the other nodes have the same state and continue. A second failure
// ends everything immediately, since the parts that the stop needs do not work. A time limit does the same. Part of the agent's
// shell; one thread.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/error.hpp"
#include "launcher/decide/agent_event.hpp"

namespace ddprun {

class OwnFailure {
 public:
  struct Hooks {
    std::function<bool()> is_over;              // the exit code is known
    std::function<std::vector<int>()> running;  // ranks whose processes run
    std::function<bool()> may_save;             // AgentState has not ended the job yet
    std::function<void(const agent_event::AgentFailed&)> save_and_stop;
    std::function<void(const agent_event::AgentFailed&)> end_at_once;
  };
  // `time_to_stop`: time that workers have to stop.
  OwnFailure(boost::asio::io_context& io, std::chrono::milliseconds time_to_stop, Hooks hooks)
      : io_(io), limit_(io), time_to_stop_(time_to_stop), hooks_(std::move(hooks)) {}

  // Calls `part`. True if it has not thrown. Handlers of the guardian, workers and timers are called through this function.
  // They must stay active after an exception, since the workers' answers are needed while the workers save.
  template <class Part>
  bool guarded(const Part& part) {
    try {
      part();
      return true;
    } catch (const Error& error) {
      if (end_is_untold_) throw;
      heard({static_cast<int>(error.code()), error.what(), {}});
    } catch (const std::exception& error) {
      if (end_is_untold_) throw;
      heard({static_cast<int>(ExitCode::kInternal), std::string("internal error: ") + error.what(), {}});
    }
    return false;
  }

  // No worker is left that could save.
  void end_at_once(const agent_event::AgentFailed& why) {
    if (!first_) first_ = why;
    tell_end();
  }

 private:
  // Added to the time to stop: it takes a minute to find that SIGKILL does not end a worker.
  static constexpr std::chrono::seconds kBesideTheStop{75};

  void heard(agent_event::AgentFailed failure) {
    if (hooks_.is_over()) return;
    if (first_ || !hooks_.may_save()) {
      if (!first_) first_ = std::move(failure);
      // Posted, since the code that has thrown still uses the objects that end_at_once closes.
      return boost::asio::post(io_, [this] { tell_end(); });
    }
    failure.running = hooks_.running();
    first_ = std::move(failure);
    limit_.expires_after(time_to_stop_ + kBesideTheStop);
    limit_.async_wait([this](const boost::system::error_code& error) {
      if (!error) tell_end();
    });
    hooks_.save_and_stop(*first_);
  }

  // An exception of an observer is not caught here. The agent then ends without kFarewell, and the guardian completes the
  // report.
  void tell_end() {
    if (hooks_.is_over()) return;
    end_is_untold_ = true;
    hooks_.end_at_once(*first_);
    end_is_untold_ = false;
  }

  boost::asio::io_context& io_;
  boost::asio::steady_timer limit_;
  std::chrono::milliseconds time_to_stop_;
  Hooks hooks_;
  std::optional<agent_event::AgentFailed> first_;
  bool end_is_untold_ = false;
};

}  // namespace ddprun
