#include "common/failure/exit_status.hpp"

#include <string_view>

#include "common/base/signal_name.hpp"

namespace ddprun {

std::string describe(const ExitStatus& status) {
  if (status.signal == 0) return "exit code " + std::to_string(status.code);
  std::string text = "signal " + std::to_string(status.signal);
  const std::string_view name = signal_abbreviation(status.signal);
  if (!name.empty()) text += " (SIG" + std::string(name) + ")";
  if (status.core_dumped) text += ", core dumped";
  return text;
}

}  // namespace ddprun
