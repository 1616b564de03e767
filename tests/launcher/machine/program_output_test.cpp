// Tests the captured output of a program, and every way in which the start or the run of a program can fail. The programs are
// shell commands.
#include "launcher/machine/program_output.hpp"

#include <gtest/gtest.h>
#include <signal.h>

#include <cerrno>

namespace ddprun {
namespace {

using End = ProgramOutput::End;

ProgramOutput output_of_shell(const std::string& script, const OutputLimits& limits = {}) {
  return output_of({"/bin/sh", "-c", script}, limits);
}

TEST(ProgramOutputTest, ReturnsStandardOutput) {
  const ProgramOutput output = output_of_shell("echo printed; echo warned >&2; exit 3");
  EXPECT_EQ(output.end, End::kExited);
  EXPECT_EQ(output.number, 3);
  EXPECT_EQ(output.text, "printed\n");
  EXPECT_EQ(output.error_output, "warned\n");
  EXPECT_EQ(output_of_shell("cat").text, "") << "there is nothing to read";
}

TEST(ProgramOutputTest, ReportsSignalsAndMissingPrograms) {
  const ProgramOutput killed = output_of_shell("kill -KILL $$");
  EXPECT_EQ(killed.end, End::kSignalled);
  EXPECT_EQ(killed.number, SIGKILL);
  const ProgramOutput missing = output_of({"/nowhere/at/all"});
  EXPECT_EQ(missing.end, End::kNotStarted);
  EXPECT_EQ(missing.number, ENOENT);
}

TEST(ProgramOutputTest, AHangingProgramIsKilled) {
  const OutputLimits little{.time = std::chrono::milliseconds(50)};
  EXPECT_EQ(output_of_shell("exec sleep 1000", little).end, End::kTimedOut);
  EXPECT_EQ(output_of_shell("sleep 1000; :", little).end, End::kTimedOut) << "with all of its processes";
  EXPECT_EQ(output_of_shell("while :; do echo x >&2; done", little).end, End::kTimedOut);
}

TEST(ProgramOutputTest, AnEndlessPrinterIsKilled) {
  const ProgramOutput output = output_of_shell("while :; do echo xxxxxxxxxxxxxxxx; done", {.bytes = 1000});
  EXPECT_EQ(output.end, End::kOutputTooLarge);
  EXPECT_EQ(output.text.size(), 1000U);
}

TEST(ProgramOutputTest, LeftoverProcessesAreNotAwaited) {
  const ProgramOutput output = output_of_shell("sleep 1000 & echo printed");
  EXPECT_EQ(output.end, End::kExited);
  EXPECT_EQ(output.text, "printed\n");
}

}  // namespace
}  // namespace ddprun
