// The table of signal_name.hpp equals the C library's, so that names are also available where the library has none.
#include "common/base/signal_name.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <string>

namespace ddprun {
namespace {

TEST(SignalName, IsTheCLibrarys) {
  for (int signal = -1; signal <= NSIG; ++signal) {
    const char* known = ::sigabbrev_np(signal);
    EXPECT_EQ(signal_abbreviation(signal), known != nullptr ? known : "") << signal;
  }
}

TEST(SignalName, OfOneWithoutANameIsItsNumber) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "signal " + std::to_string(SIGRTMIN + 3));
}

}  // namespace
}  // namespace ddprun
