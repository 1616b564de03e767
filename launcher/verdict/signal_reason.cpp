// Implementation of signal_reason.hpp.
#include "launcher/verdict/signal_reason.hpp"

#include <csignal>

namespace ddprun {

std::string reason_of_signal(int signal) {
  switch (signal) {
    case SIGBUS:
      return "most often /dev/shm or a disk is full, or a file was cut while it was mapped";
    case SIGILL:
      return "most often it was built for another kind of CPU";
    case SIGXFSZ:
      return "a file of it would have grown past the limit (ulimit -f)";
    case SIGXCPU:
      return "it has used the CPU time that it may use (ulimit -t)";
    default:
      return "";
  }
}

}  // namespace ddprun
