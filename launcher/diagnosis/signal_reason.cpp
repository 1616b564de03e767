#include "launcher/diagnosis/signal_reason.hpp"

#include <csignal>

namespace ddprun {

std::string reason_of_signal(int signal) {
  switch (signal) {
    case SIGBUS:
      return "usual cause: /dev/shm or a disk is full, or a memory-mapped file was truncated";
    case SIGILL:
      return "usual cause: the program was built for another type of CPU";
    case SIGXFSZ:
      return "a file that the worker wrote reached the file size limit (ulimit -f)";
    case SIGXCPU:
      return "the worker reached the CPU time limit (ulimit -t)";
    default:
      return "";
  }
}

}  // namespace ddprun
