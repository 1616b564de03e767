// Implementation of guardian.hpp: start and end of the guardian's process.
#include "launcher/guardian/guardian.hpp"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <exception>
#include <optional>
#include <string>

#include "launcher/guardian/guardian_loop.hpp"
#include "launcher/guardian/guardian_report.hpp"
#include "launcher/guardian/process_title.hpp"
#include "launcher/leftovers/process_tree.hpp"

namespace ddprun::guardian {

void guardian_main(const GuardianSettings& settings) {
  ::setsid();
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // If the guardian is stopped (SIGSTOP) when the agent dies, SIGCONT continues it. If the agent died before this call, the
  // guardian detects the closed socket.
  ::prctl(PR_SET_PDEATHSIG, SIGCONT);
  // The process name does not contain "ddprun", so "pkill -9 ddprun" does not kill the guardian, which must end the workers.
  ::prctl(PR_SET_NAME, "job-guardian");
  set_process_title("job-guardian of process " + std::to_string(::getppid()));
  std::optional<Guardian> guardian;
  try {
    guardian.emplace(settings);
    guardian->run();
  } catch (const std::exception&) {
    // If the event loop has failed, the guardian can only kill its workers, as the code below does. The agent detects the
    // closed socket and reports the failure.
  }
  // The console is closed before the workers are killed, since readers of ddprun's output wait until it is closed. Killing may
  // take long if a worker cannot be killed.
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) ::close(fd);
  if (guardian) guardian->end_store();  // The store ends first, since a new agent may need its port immediately.
  if (guardian) guardian->cgroups().kill();
  kill_children_until_none_is_left();
  if (guardian) guardian->cgroups().remove();
  if (!(guardian && guardian->agent_shut_down_cleanly())) {
    if (guardian) send_death_notice(guardian->death_notice());
    complete_report(settings.report, guardian ? guardian->newest_report() : -1);
  }
  ::_exit(0);
}

}  // namespace ddprun::guardian
