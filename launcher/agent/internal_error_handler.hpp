// Handles every exception in the agent: a failed check in our code, an error of the system or of a library, exhausted memory.
// The first exception becomes an event for AgentState, which stops the workers and then ends the job. If the exception is an
// Error, it contains the exit code of the job; for any other exception the exit code is 89. On one machine the workers save
// before they stop. On many machines they do not, since the other nodes have the same state and continue.
//
// After a second exception the agent exits immediately, because the code that stops the workers may be broken. The guardian
// then kills the workers. The same happens if the workers have not stopped in time. The class is part of the agent's shell and
// runs on one thread.
#pragma once

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/error.hpp"
#include "launcher/agent_state/agent_event.hpp"

namespace ddprun {

class InternalErrorHandler {
 public:
  struct Agent {
    virtual bool is_over() const = 0;                    // true once the job's exit code is known
    virtual std::vector<int> running_ranks() const = 0;  // local ranks of workers whose processes are running
    virtual bool may_save() const = 0;  // false after AgentState has ended the job, since the workers then no longer save
    virtual void save_and_stop(const agent_event::AgentFailed& failure) = 0;
    virtual void end_by(const agent_event::AgentFailed& failure) = 0;  // ends everything immediately

   protected:
    ~Agent() = default;
  };
  // If the workers have not stopped within `time_to_stop`, the agent exits immediately, and the guardian kills the workers.
  InternalErrorHandler(boost::asio::io_context& io, std::chrono::milliseconds time_to_stop, Agent& agent)
      : io_(io), limit_(io), time_to_stop_(time_to_stop), agent_(agent) {}

  // Calls `part` and returns false if it threw an exception. All event handlers run inside this function. The event loop must
  // keep running after an exception, since the agent still needs the workers' messages while they save.
  template <class Part>
  bool guarded(const Part& part) {
    try {
      part();
      return true;
    } catch (const Error& error) {
      if (in_end_hook_) throw;
      on_error({static_cast<int>(error.code()), error.what(), {}});
    } catch (const std::exception& error) {
      if (in_end_hook_) throw;
      on_error({static_cast<int>(ExitCode::kInternal), std::string("internal error: ") + error.what(), {}});
    }
    return false;
  }

  // Ends the job without saving. The agent calls this when all workers are already dead.
  void end_immediately(const agent_event::AgentFailed& why) {
    if (!first_) first_ = why;
    end_now();
  }

 private:
  // This time is added to the workers' time to stop. It is longer than the 60 s after which SlowStop reports a worker that
  // survives SIGKILL.
  static constexpr std::chrono::seconds kStopMargin{75};

  void on_error(agent_event::AgentFailed failure) {
    if (agent_.is_over()) return;
    if (first_ || !agent_.may_save()) {
      if (!first_) first_ = std::move(failure);
      // end_now() is posted, because the function that threw is still using objects that end_now() closes.
      return boost::asio::post(io_, [this] { end_now(); });
    }
    failure.running = agent_.running_ranks();
    first_ = std::move(failure);
    limit_.expires_after(time_to_stop_ + kStopMargin);
    limit_.async_wait([this](const boost::system::error_code& error) {
      if (!error) end_now();
    });
    agent_.save_and_stop(*first_);
  }

  // An observer that throws during end_by() is not caught. The agent then exits and does not send kCleanShutdown, so the
  // guardian completes the report.
  void end_now() {
    if (agent_.is_over()) return;
    in_end_hook_ = true;
    agent_.end_by(*first_);
    in_end_hook_ = false;
  }

  boost::asio::io_context& io_;
  boost::asio::steady_timer limit_;
  std::chrono::milliseconds time_to_stop_;
  Agent& agent_;
  std::optional<agent_event::AgentFailed> first_;
  bool in_end_hook_ = false;
};

}  // namespace ddprun
