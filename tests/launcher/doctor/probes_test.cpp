// Tests the child processes of the doctor: the order of their results, crashes, exceptions and time limits.
#include "launcher/doctor/probes.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <stdexcept>

namespace ddprun::doctor {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Probe probe(const std::string& name, std::function<Checks()> examine, milliseconds limit = milliseconds(600'000)) {
  return {name, std::move(examine), limit, warning(name, "late", "wait")};
}

TEST(DoctorProbes, KeepTheirOrder) {
  const Checks checks = run_probes({probe("a",
                                          [] {
                                            return Checks{ok("a1", "x"), ok("a2", "x")};
                                          }),
                                    probe("b", [] { return Checks(); }), probe("c", [] { return Checks{ok("c1", "x")}; })},
                                   steady_clock::now());
  EXPECT_EQ(checks, (Checks{ok("a1", "x"), ok("a2", "x"), ok("c1", "x")}));
}

TEST(DoctorProbes, AFailureCostsOnlyItsOwnSubject) {
  const Checks checks =
      run_probes({probe("crash",
                        []() -> Checks {
                          ::signal(SIGTERM, SIG_DFL);
                          ::raise(SIGTERM);
                          return {};
                        }),
                  probe("throw", []() -> Checks { throw std::runtime_error("no driver"); }),
                  probe("exit", []() -> Checks { ::_exit(3); }), probe("good", [] { return Checks{ok("good", "x")}; })},
                 steady_clock::now());
  ASSERT_EQ(checks.size(), 4u);
  EXPECT_EQ(checks[0].verdict, CheckVerdict::kWarning);
  EXPECT_NE(checks[0].found.find("SIGTERM"), std::string::npos) << checks[0].found;
  EXPECT_NE(checks[1].found.find("no driver"), std::string::npos) << checks[1].found;
  EXPECT_EQ(checks[2].check, "exit");
  EXPECT_EQ(checks[2].verdict, CheckVerdict::kWarning);
  EXPECT_EQ(checks[3], ok("good", "x"));
}

TEST(DoctorProbes, AProbeWithoutAnAnswerIsReplaced) {
  // The time limit has passed before the probe starts, so the result of this test does not depend on time.
  const Checks checks = run_probes({probe(
                                       "hangs",
                                       []() -> Checks {
                                         for (;;) ::poll(nullptr, 0, -1);
                                       },
                                       milliseconds(0))},
                                   steady_clock::now());
  EXPECT_EQ(checks, Checks{warning("hangs", "late", "wait")});
}

TEST(DoctorProbes, MayStartProbesThemselves) {
  const Checks checks = run_probes(
      {probe("outer",
             [] { return run_probes({probe("inner", [] { return Checks{ok("inner", "x")}; })}, steady_clock::now()); })},
      steady_clock::now());
  EXPECT_EQ(checks, Checks{ok("inner", "x")});
}

TEST(DoctorProbes, LargeAnswersAreComplete) {
  const Checks many(2000, ok("many", std::string(100, 'x')));
  EXPECT_EQ(run_probes({probe("many", [&] { return many; })}, steady_clock::now()), many);
}

}  // namespace
}  // namespace ddprun::doctor
