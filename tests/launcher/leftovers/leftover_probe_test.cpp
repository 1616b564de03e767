// Tests the guardian's reader of /proc, for processes that a worker leaves behind.
#include "launcher/leftovers/leftover_probe.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace ddprun::guardian {
namespace {

using Words = std::vector<std::string>;

TEST(RunsProgram, MatchesTheCommandOrItsScript) {
  const Words python{"/usr/bin/python3", "-u", "train.py", "--lr", "1"};
  EXPECT_TRUE(runs_program({"/usr/bin/python3", "-u", "train.py", "--lr", "1"}, python));
  EXPECT_TRUE(runs_program({"python3", "train.py", "--child"}, python));
  EXPECT_FALSE(runs_program({"python3", "-c", "from multiprocessing.resource_tracker import main;main(5)"}, python));
  EXPECT_FALSE(runs_program({"python3", "upload.py"}, python));
  EXPECT_TRUE(runs_program({"/bin/sh", "./run.sh"}, {"./run.sh"}));
  EXPECT_TRUE(runs_program({"python", "-m", "mine.train"}, {"/usr/bin/python3", "-u", "-m", "mine.train"}));
}

TEST(RunsProgram, AShellIsNotAWorkerProgram) {
  EXPECT_FALSE(runs_program({"/bin/sh", "other.sh"}, {"/bin/sh", "-c", "python train.py &"}));
  EXPECT_FALSE(runs_program({}, {"/bin/sh"}));
}

std::uint64_t mask_of(int signal) {
  return std::uint64_t{1} << (signal - 1);
}

TEST(Handles, DetectsHandlersAndBlockedSignals) {
  EXPECT_TRUE(handles("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000004002\n", SIGTERM));
  EXPECT_TRUE(handles("SigBlk:\t0000000000004000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n", SIGTERM));
  EXPECT_FALSE(handles("SigBlk:\t0000000000000000\nSigIgn:\t0000000000004000\nSigCgt:\t0000000000000002\n", SIGTERM));
  EXPECT_FALSE(handles("", SIGTERM));
}

TEST(WasReached, DetectsSignalsThatItSurvived) {
  const std::string usual = "SigIgn:\t0000000000001000\nSigCgt:\t0000000000000000\n";  // only SIGPIPE is ignored
  const std::string ignores_sigterm = "SigIgn:\t0000000000004000\nSigCgt:\t0000000000000000\n";
  const std::string in_background = "SigIgn:\t0000000000000006\nSigCgt:\t0000000000000000\n";
  const std::string saves_on_usr1 = "SigIgn:\t0000000000000000\nSigCgt:\t0000000000000200\n";
  const WorkerMark stopped{.signals = mask_of(SIGTERM)}, interrupted{.signals = mask_of(SIGINT)};
  const WorkerMark notified{.signals = mask_of(SIGUSR1)}, ordered{.ordered = true};
  EXPECT_FALSE(was_reached(stopped, usual));  // a process that a shell forked after the signal was sent
  EXPECT_TRUE(was_reached(stopped, ignores_sigterm));
  EXPECT_FALSE(was_reached(interrupted, in_background));
  EXPECT_FALSE(was_reached(notified, usual));
  EXPECT_TRUE(was_reached(notified, saves_on_usr1));
  EXPECT_FALSE(was_reached(stopped, saves_on_usr1));
  EXPECT_TRUE(was_reached(ordered, usual));
  EXPECT_FALSE(was_reached({}, ignores_sigterm));
}

TEST(ProbeLeftover, AProcessBelongsToTheWorkerOfItsSession) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setsid();
    ::signal(SIGTERM, [](int) {});
    [[maybe_unused]] const ssize_t n = ::write(ready[1], "x", 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const WorkerMark other{.number = 3, .pid = 1 << 21}, mark{.number = 4, .pid = pid, .signals = mask_of(SIGTERM)};
  const SweepState::Observation probe = probe_leftover(pid, {other, mark});
  EXPECT_EQ(probe.worker, 4);
  EXPECT_TRUE(probe.handles_sigterm);
  EXPECT_TRUE(probe.reached);
  EXPECT_FALSE(probe.connected);
  WorkerMark interrupted = mark;
  interrupted.signals = mask_of(SIGINT);
  // the process does not handle SIGINT, so the signal has not reached it
  EXPECT_FALSE(probe_leftover(pid, {interrupted}).reached);
  WorkerMark with_channel = mark;
  with_channel.channel_pid = pid;
  EXPECT_TRUE(probe_leftover(pid, {other, with_channel}).connected);
  EXPECT_TRUE(leftover_name(pid).starts_with(std::to_string(pid) + " "));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(probe_leftover(pid, {mark}).worker, -1);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace ddprun::guardian
