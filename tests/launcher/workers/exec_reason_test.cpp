// Explanations for a program that exec refuses, from the beginning of its file, and for signals that have a usual sender.
#include "launcher/workers/exec_reason.hpp"
#include "launcher/verdict/signal_reason.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <fstream>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

class LikelyReason : public ::testing::Test {
 protected:
  std::string of_exec(int error, const std::string& content) {
    const auto file = folder_ / "program";
    std::ofstream(file, std::ios::binary) << content;
    return reason_of_exec_error(error, file);
  }
  test::TemporaryFolder folder_;
};

TEST_F(LikelyReason, AnInterpreterThatIsNotThereIsNamed) {
  EXPECT_EQ(of_exec(ENOENT, "#!/opt/none/python3 -u\nprint()\n"),
            "its first line names '/opt/none/python3', which is not there");
  EXPECT_EQ(of_exec(ENOENT, "#! \t/opt/none/sh"), "its first line names '/opt/none/sh', which is not there");
}

TEST_F(LikelyReason, LineEndsOfWindows) {
  EXPECT_EQ(of_exec(ENOENT, "#!/bin/sh\r\ntrue\r\n"),
            "its lines end as on Windows, so the kernel looks for '/bin/sh\\u000d': tr -d '\\r' makes a file without");
}

TEST_F(LikelyReason, AProgramWithoutItsLoader) {
  EXPECT_EQ(of_exec(ENOENT, "\177ELF..."), "its loader is not on this machine: it was built for another system");
}

TEST_F(LikelyReason, NoProgramAtAll) {
  EXPECT_EQ(of_exec(ENOEXEC, "true\n"), "it is neither a program for this machine nor a script that begins with #!");
}

TEST_F(LikelyReason, NotAllowed) {
  EXPECT_EQ(of_exec(EACCES, "#!/usr/bin\n"), "its first line names '/usr/bin', which is a folder");
  EXPECT_EQ(of_exec(EACCES, "#!/bin/sh\n"),
            "it, or what its first line names, has no x permission, or its file system is mounted noexec");
}

TEST_F(LikelyReason, WhereTheErrnoSaysItAllNothingIsAdded) {
  EXPECT_EQ(reason_of_exec_error(ENOENT, folder_ / "nothing"), "");
  EXPECT_EQ(of_exec(ENOENT, "#!\n"), "");
  EXPECT_EQ(of_exec(ENOENT, ""), "");
  EXPECT_EQ(of_exec(E2BIG, "#!/bin/sh\n"), "");
}

TEST_F(LikelyReason, OfSignals) {
  EXPECT_NE(reason_of_signal(SIGXFSZ).find("ulimit -f"), std::string::npos);
  EXPECT_NE(reason_of_signal(SIGXCPU).find("ulimit -t"), std::string::npos);
  EXPECT_NE(reason_of_signal(SIGBUS).find("/dev/shm"), std::string::npos);
  EXPECT_NE(reason_of_signal(SIGILL).find("CPU"), std::string::npos);
  EXPECT_EQ(reason_of_signal(SIGSEGV), "");
  EXPECT_EQ(reason_of_signal(SIGKILL), "");
}

}  // namespace
}  // namespace ddprun
