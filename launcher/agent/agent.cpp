// Implementation of agent.hpp: the shell is made, run and ended.
#include "launcher/agent/agent.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "common/base/error.hpp"
#include "launcher/agent/agent_shell.hpp"

namespace ddprun {
namespace {

using boost::asio::steady_timer;

// Rounds are counted on over the invocations of a run directory: one more than the newest logs/round-NNN.
int first_round_in(const std::filesystem::path& log_root, LogLayout layout) {
  int next = 0;
  if (layout != LogLayout::kRounds) return next;  // a folder of its own for each run
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(log_root, error)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "round-";
    int round = 0;
    if (name.starts_with(kPrefix) &&
        std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), round).ec == std::errc{}) {
      next = std::max(next, round + 1);
    }
  }
  return next;
}

WorkerOutputSettings output_settings(const Plan& plan, const AgentFiles& files) {
  WorkerOutputSettings settings{.log_root = files.log_root, .layout = files.layout, .workers = plan.nproc_per_node};
  if (plan.kind != Plan::Kind::kTrain) {
    settings.script = plan.output;
    settings.kept = files.log_root.empty() ? KeptFiles::kNone : kept_files(plan);
  }
  return settings;
}

HangSettings hang_settings(const Plan& plan) {
  return {.limits = plan.hang,
          .channel = plan.kind == Plan::Kind::kTrain,
          .python = plan.kind == Plan::Kind::kPython || plan.kind == Plan::Kind::kModule};
}

}  // namespace

AgentShell::AgentShell(const Plan& plan, const AgentFiles& files, const BlockedSignals& signals, GuardianProcess guardian,
                       const MakeObservers& make_observers, std::optional<NetworkStart> network)
    : plan_(plan),
      signals_(io_, signals.descriptor()),
      console_(io_, STDOUT_FILENO, STDERR_FILENO),
      output_(io_, console_, output_settings(plan, files)),
      timers_{steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_), steady_timer(io_)},
      pipe_timer_(io_),
      store_(io_,
             [this](int number, const channel::StoreReply& reply) {
               if (WorkerChannel* const channel = channel_of(number)) channel->send(reply);
             }),
      state_({.world_size = plan.nproc_per_node,
              .mode = network ? AgentSettings::Mode::kMember : AgentSettings::Mode::kAlone,
              .workers_have_channel = plan.kind == Plan::Kind::kTrain,
              .first_round = first_round_in(files.log_root, files.layout),
              .shutdown_timeout = plan.shutdown_timeout,
              .restarts = {plan.max_restarts, plan.refill_by_progress, plan.restart_rules},
              .regroup_limit = plan.regroup_limit,
              .standbys = plan.standbys}),
      inherited_environment_(environment_of_this_process()),
      standbys_(io_, files.log_root, plan.nproc_per_node,
                [this](int number, const channel::FromWorker& message) { on_message(number, message); }),
      chunk_(64 << 10),
      stuck_timer_(io_),
      hang_(io_, hang_settings(plan), hang_hooks()),
      guardian_(
          io_, std::move(guardian), [this](const guardian::Notice& notice) { on_notice(notice); },
          [this] { on_guardian_death(); }) {
  output_.set_unread([this](int rank, Stream stream) {
    const auto& pipe = workers_[static_cast<std::size_t>(rank)].pipes[static_cast<std::size_t>(stream)];
    int bytes = 0;
    return pipe && ::ioctl(pipe->native_handle(), FIONREAD, &bytes) == 0 && bytes > 0;
  });
  observers_ = make_observers(io_, console_);
  const auto environment = [](std::string_view name) -> std::optional<std::string> {
    const char* value = std::getenv(std::string(name).c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
  if (auto path = FileTimerServer::path_in(environment)) {
    file_timers_.emplace(io_, *std::move(path), [this](const TimerRequest& request) { on_overdue_timer(request); });
  }
  const auto stuck_timeout = stuck_timeout_of(environment("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"));
  if (stuck_timeout.count() > 0) stuck_.emplace(stuck_timeout);
  if (files.lock_fd >= 0) {
    run_directory_.emplace(io_, plan.run_dir, files.lock_fd, [this] {
      publish(RunDirectoryRemoved{plan_.run_dir.string(), realtime_ns()});
    });
  }
  if (network) join_job(*std::move(network));
}

void AgentShell::join_job(NetworkStart start) {
  JobLink::Hooks hooks;
  hooks.feed = [this](const AgentEvent& event) { feed(event); };
  hooks.publish = [this](const RunEvent& event) { publish(event); };
  hooks.set_deadline = [this](std::optional<rendezvous::Time> deadline) { guardian_.set_deadline(deadline); };
  hooks.answer_worker = [this](int rank, const channel::StoreReply& reply) {
    if (rank < 0 || rank >= static_cast<int>(workers_.size())) return;
    if (const auto& channel = workers_[static_cast<std::size_t>(rank)].channel) channel->send(reply);
  };
  job_ = std::make_unique<JobLink>(io_, std::move(start), plan_, std::move(hooks));
}

int AgentShell::run() {
  try {
    wait_for_signals();
    feed(agent_event::Begin{});
    if (job_) job_->begin();
    if (!exit_code_) io_.run();
  } catch (const Error& error) {
    if (exit_code_) throw;
    // The console, its readers and the report are told as of any other end; the guardian's end takes the workers with it.
    exit_code_ = static_cast<int>(error.code());
    close_workers();
    master_port_.reset();  // when descriptors ran out, the report needs one
    publish(RunEnded{*exit_code_, error.what(), restart_count_, instant_now().realtime_ns});
  }
  return exit_code_.value();
}

int run_agent(const Plan& plan, const AgentFiles& files, const MakeObservers& make_observers,
              std::optional<NetworkStart> network, const AtEnd& at_end) {
  const BlockedSignals signals(plan.signals_to_handle);
  GuardianProcess guardian = start_guardian(files.lock_fd, files.report);
  AgentShell agent(plan, files, signals, std::move(guardian), make_observers, std::move(network));
  const int exit_code = agent.run();
  agent.say_farewell();
  if (at_end) at_end(exit_code);
  return exit_code;
}

}  // namespace ddprun
