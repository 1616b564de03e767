// Tests the process title of a process that was forked without exec. ps and pgrep -f show this title.
#include "launcher/guardian/process_title.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iterator>

namespace ddprun::guardian {
namespace {

std::string arguments_of(const std::string& process) {
  std::ifstream in("/proc/" + process + "/cmdline", std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ProcessTitle, ReplacesAllArgumentsOfThisProcessOnly) {
  const std::string ours = arguments_of("self");
  for (const std::string& title : {std::string("job-guardian of process 7"), std::string(ours.size() + 100, 'x')}) {
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      set_process_title(title);
      ::close(ends[1]);
      ::pause();
      ::_exit(0);
    }
    ::close(ends[1]);
    char nothing;
    EXPECT_EQ(::read(ends[0], &nothing, 1), 0);  // end of file: the child has set its title
    ::close(ends[0]);
    const std::string shown = arguments_of(std::to_string(child));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string expected = title.substr(0, ours.size() - 1);
    EXPECT_EQ(shown.substr(0, expected.size()), expected);
    EXPECT_EQ(shown.find_first_not_of('\0', expected.size()), std::string::npos);
  }
  EXPECT_EQ(arguments_of("self"), ours);
}

}  // namespace
}  // namespace ddprun::guardian
