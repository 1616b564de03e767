// Tests explanations of two kinds of failures. If execve() fails, the first line of the file may explain why. A signal is
// explained if it usually has one particular cause.
#include "launcher/workers/exec_reason.hpp"
#include "launcher/diagnosis/signal_reason.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

class ExecReason : public ::testing::Test {
 protected:
  std::string of_exec(int error, const std::string& content) {
    const auto file = folder_ / "program";
    std::ofstream(file, std::ios::binary) << content;
    return reason_of_exec_error(error, file);
  }
  test::TemporaryFolder folder_;
};

TEST_F(ExecReason, AMissingInterpreterIsNamed) {
  EXPECT_EQ(of_exec(ENOENT, "#!/opt/none/python3 -u\nprint()\n"),
            "its first line names '/opt/none/python3', which does not exist");
  EXPECT_EQ(of_exec(ENOENT, "#! \t/opt/none/sh"), "its first line names '/opt/none/sh', which does not exist");
}

TEST_F(ExecReason, RecognizesWindowsLineEnds) {
  EXPECT_EQ(of_exec(ENOENT, "#!/bin/sh\r\ntrue\r\n"),
            "it has Windows newlines (CR LF), so the kernel searches for the interpreter '/bin/sh\\u000d': remove the CRs "
            "with tr -d '\\r'");
}

TEST_F(ExecReason, RecognizesAMissingLoader) {
  EXPECT_EQ(of_exec(ENOENT, "\177ELF..."),
            "its dynamic loader does not exist on this machine: it was built for another system");
}

TEST_F(ExecReason, RecognizesTextWithoutAnInterpreterLine) {
  EXPECT_EQ(of_exec(ENOEXEC, "true\n"), "it is neither a program for this machine nor a script that starts with #!");
}

TEST_F(ExecReason, RecognizesMissingPermissions) {
  EXPECT_EQ(of_exec(EACCES, "#!/usr/bin\n"), "its first line names '/usr/bin', which is a folder");
  EXPECT_EQ(of_exec(EACCES, "#!/bin/sh\n"),
            "it or the interpreter in its first line is not executable (chmod +x), or its file system is mounted noexec");
}

TEST_F(ExecReason, ClearErrnosGetNoReason) {
  EXPECT_EQ(reason_of_exec_error(ENOENT, folder_ / "nothing"), "");
  EXPECT_EQ(of_exec(ENOENT, "#!\n"), "");
  EXPECT_EQ(of_exec(ENOENT, ""), "");
  EXPECT_EQ(of_exec(E2BIG, "#!/bin/sh\n"), "");
}

TEST_F(ExecReason, ExplainsSignals) {
  EXPECT_NE(reason_of_signal(SIGXFSZ).find("ulimit -f"), std::string::npos);
  EXPECT_NE(reason_of_signal(SIGXCPU).find("ulimit -t"), std::string::npos);
  EXPECT_NE(reason_of_signal(SIGBUS).find("/dev/shm"), std::string::npos);
  EXPECT_NE(reason_of_signal(SIGILL).find("CPU"), std::string::npos);
  EXPECT_EQ(reason_of_signal(SIGSEGV), "");
  EXPECT_EQ(reason_of_signal(SIGKILL), "");
}

}  // namespace
}  // namespace ddprun
