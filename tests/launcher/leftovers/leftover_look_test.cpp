// The state in /proc of processes that a worker leaves behind.
#include "launcher/leftovers/leftover_look.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace ddprun::guardian {
namespace {

using Words = std::vector<std::string>;

TEST(RunsProgram, TheWholeCommandOrItsScript) {
  const Words python{"/usr/bin/python3", "-u", "train.py", "--lr", "1"};
  EXPECT_TRUE(runs_program({"/usr/bin/python3", "-u", "train.py", "--lr", "1"}, python));
  EXPECT_TRUE(runs_program({"python3", "train.py", "--child"}, python));
  EXPECT_FALSE(runs_program({"python3", "-c", "from multiprocessing.resource_tracker import main;main(5)"}, python));
  EXPECT_FALSE(runs_program({"python3", "upload.py"}, python));
  EXPECT_TRUE(runs_program({"/bin/sh", "./run.sh"}, {"./run.sh"}));
  EXPECT_TRUE(runs_program({"python", "-m", "mine.train"}, {"/usr/bin/python3", "-u", "-m", "mine.train"}));
}

TEST(RunsProgram, AShellIsNoProgramOfTheJobs) {
  EXPECT_FALSE(runs_program({"/bin/sh", "other.sh"}, {"/bin/sh", "-c", "python train.py &"}));
  EXPECT_FALSE(runs_program({}, {"/bin/sh"}));
}

std::uint64_t mask_of(int signal) {
  return std::uint64_t{1} << (signal - 1);
}

TEST(Handles, WithAHandlerOrByReadingWhatIsBlocked) {
  EXPECT_TRUE(handles("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000004002\n", SIGTERM));
  EXPECT_TRUE(handles("SigBlk:\t0000000000004000\nSigIgn:\t0000000000000000\nSigCgt:\t0000000000000000\n", SIGTERM));
  EXPECT_FALSE(handles("SigBlk:\t0000000000000000\nSigIgn:\t0000000000004000\nSigCgt:\t0000000000000002\n", SIGTERM));
  EXPECT_FALSE(handles("", SIGTERM));
}

TEST(WasReached, ByASignalThatWouldHaveEndedItOtherwise) {
  const std::string usual = "SigIgn:\t0000000000001000\nSigCgt:\t0000000000000000\n";  // ignores SIGPIPE
  const std::string ignores_sigterm = "SigIgn:\t0000000000004000\nSigCgt:\t0000000000000000\n";
  const std::string in_background = "SigIgn:\t0000000000000006\nSigCgt:\t0000000000000000\n";
  const std::string saves_on_usr1 = "SigIgn:\t0000000000000000\nSigCgt:\t0000000000000200\n";
  const WorkerMark stopped{.signals = mask_of(SIGTERM)}, interrupted{.signals = mask_of(SIGINT)};
  const WorkerMark notified{.signals = mask_of(SIGUSR1)}, ordered{.ordered = true};
  EXPECT_FALSE(was_reached(stopped, usual));  // a shell forked it after the signal
  EXPECT_TRUE(was_reached(stopped, ignores_sigterm));
  EXPECT_FALSE(was_reached(interrupted, in_background));
  EXPECT_FALSE(was_reached(notified, usual));
  EXPECT_TRUE(was_reached(notified, saves_on_usr1));
  EXPECT_FALSE(was_reached(stopped, saves_on_usr1));
  EXPECT_TRUE(was_reached(ordered, usual));
  EXPECT_FALSE(was_reached({}, ignores_sigterm));
}

TEST(TcpInodes, AreThoseOfThePortAtEitherEnd) {
  const std::string table =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
      "   0: 0100007F:7149 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 x\n"
      "   1: 0100007F:C350 0100007F:7149 01 00000000:00000000 00:00000000 00000000     0        0 12 1 x\n"
      "   2: 0100007F:7149 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 13 1 x\n"
      "   3: 0100007F:0050 0100007F:C351 01 00000000:00000000 00:00000000 00000000     0        0 14 1 x\n";
  EXPECT_EQ(tcp_inodes(table, 0x7149), (Words{"12", "13"}));
  EXPECT_EQ(tcp_inodes(table, 0), Words{"11"});
  EXPECT_TRUE(tcp_inodes("", 5).empty());
}

TEST(LookAtLeftover, AProcessBelongsToTheWorkerOfItsSession) {
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
  const LeftoverLook look = look_at_leftover(pid, {other, mark});
  EXPECT_EQ(look.worker, 4);
  EXPECT_TRUE(look.catches);
  EXPECT_TRUE(look.reached);
  EXPECT_FALSE(look.connected);
  WorkerMark interrupted = mark;
  interrupted.signals = mask_of(SIGINT);
  EXPECT_FALSE(look_at_leftover(pid, {interrupted}).reached);  // it has no handler for the signal
  WorkerMark speaks = mark;
  speaks.speaker = pid;
  EXPECT_TRUE(look_at_leftover(pid, {other, speaks}).connected);
  EXPECT_TRUE(leftover_name(pid).starts_with(std::to_string(pid) + " "));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(look_at_leftover(pid, {mark}).worker, -1);
  ::close(ready[0]);
  ::close(ready[1]);
}

}  // namespace
}  // namespace ddprun::guardian
