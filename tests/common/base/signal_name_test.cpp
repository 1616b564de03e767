// Tests that the table in signal_name.hpp has the same names as the C library. Some C libraries have no function that returns
// the name of a signal.
#include "common/base/signal_name.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <string>

namespace ddprun {
namespace {

TEST(SignalName, MatchesTheCLibrary) {
  for (int signal = -1; signal <= NSIG; ++signal) {
    const char* known = ::sigabbrev_np(signal);
    EXPECT_EQ(signal_abbreviation(signal), known != nullptr ? known : "") << signal;
  }
}

TEST(SignalName, UnnamedSignalIsItsNumber) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "signal " + std::to_string(SIGRTMIN + 3));
}

}  // namespace
}  // namespace ddprun
