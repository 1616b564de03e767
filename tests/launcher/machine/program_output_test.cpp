// The output of a program, and each way in which running it may fail. The programs are shell commands.
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

TEST(ProgramOutputTest, IsWhatItPrints) {
  const ProgramOutput output = output_of_shell("echo said; echo warned >&2; exit 3");
  EXPECT_EQ(output.end, End::kExited);
  EXPECT_EQ(output.number, 3);
  EXPECT_EQ(output.text, "said\n");
  EXPECT_EQ(output.complaints, "warned\n");
  EXPECT_EQ(output_of_shell("cat").text, "") << "there is nothing to read";
}

TEST(ProgramOutputTest, ASignalAndAMissingProgram) {
  const ProgramOutput killed = output_of_shell("kill -KILL $$");
  EXPECT_EQ(killed.end, End::kSignalled);
  EXPECT_EQ(killed.number, SIGKILL);
  const ProgramOutput missing = output_of({"/nowhere/at/all"});
  EXPECT_EQ(missing.end, End::kNotStarted);
  EXPECT_EQ(missing.number, ENOENT);
}

TEST(ProgramOutputTest, WhoHangsIsGivenUp) {
  const OutputLimits little{.time = std::chrono::milliseconds(50)};
  EXPECT_EQ(output_of_shell("exec sleep 1000", little).end, End::kTooLate);
  EXPECT_EQ(output_of_shell("sleep 1000; :", little).end, End::kTooLate) << "with all of its processes";
  EXPECT_EQ(output_of_shell("while :; do echo x >&2; done", little).end, End::kTooLate);
}

TEST(ProgramOutputTest, WhoPrintsWithoutEndIsGivenUp) {
  const ProgramOutput output = output_of_shell("while :; do echo xxxxxxxxxxxxxxxx; done", {.bytes = 1000});
  EXPECT_EQ(output.end, End::kTooMuch);
  EXPECT_EQ(output.text.size(), 1000U);
}

TEST(ProgramOutputTest, AProcessThatItLeavesBehindIsNotAwaited) {
  const ProgramOutput output = output_of_shell("sleep 1000 & echo said");
  EXPECT_EQ(output.end, End::kExited);
  EXPECT_EQ(output.text, "said\n");
}

}  // namespace
}  // namespace ddprun
