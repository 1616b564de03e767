// Implementation of torchrun_name.hpp. The banner has the format of Python's logging module, like torchrun's banner.
#include "launcher/plan/torchrun_name.hpp"

#include <unistd.h>

#include <cstdio>
#include <ctime>

namespace ddprun {

CalledAs name_called_by(std::string_view argv0) {
  const std::size_t slash = argv0.rfind('/');
  return argv0.substr(slash == std::string_view::npos ? 0 : slash + 1) == "torchrun" ? CalledAs::kTorchrun : CalledAs::kDdprun;
}

std::string threads_banner(const Plan& plan, const Environment& environment) {
  if (!plan.as_torchrun || plan.nproc_per_node <= 1 || environment("OMP_NUM_THREADS")) return {};
  const std::string level = environment("LOGLEVEL").value_or("WARNING");
  if (level == "ERROR" || level == "CRITICAL" || level == "FATAL") return {};

  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  tm local{};
  ::localtime_r(&now.tv_sec, &local);
  char date[32], mark[96];
  std::strftime(date, sizeof date, "%m%d %H:%M:%S", &local);
  std::snprintf(mark, sizeof mark, "W%s.%06ld %d torch/distributed/run.py] ", date, now.tv_nsec / 1000,
                static_cast<int>(::getpid()));
  const std::string stars(41, '*');
  std::string banner;
  for (const std::string& line : {std::string(), stars,
                                  std::string("Setting OMP_NUM_THREADS environment variable for each process to be 1, so that "
                                              "workers do not overload this machine; set it yourself for more speed."),
                                  stars}) {
    banner += mark + line + "\n";
  }
  return banner;
}

int torchrun_exit_code(int exit_code) {
  return exit_code == 0 ? 0 : 1;
}

}  // namespace ddprun
