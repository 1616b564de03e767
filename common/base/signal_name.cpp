// Implementation of signal_name.hpp.
#include "common/base/signal_name.hpp"

#include <cstring>

namespace ddprun {

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

}  // namespace ddprun
