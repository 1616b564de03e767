// Implementation of signal_name.hpp. It has a separate table of names, because glibc before 2.32 has no function that returns
// these names.
#include "common/base/signal_name.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <utility>

namespace ddprun {
namespace {

constexpr std::array<std::pair<int, std::string_view>, 31> kAbbreviations{{
    {SIGHUP, "HUP"},   {SIGINT, "INT"},       {SIGQUIT, "QUIT"}, {SIGILL, "ILL"},       {SIGTRAP, "TRAP"}, {SIGABRT, "ABRT"},
    {SIGBUS, "BUS"},   {SIGFPE, "FPE"},       {SIGKILL, "KILL"}, {SIGUSR1, "USR1"},     {SIGSEGV, "SEGV"}, {SIGUSR2, "USR2"},
    {SIGPIPE, "PIPE"}, {SIGALRM, "ALRM"},     {SIGTERM, "TERM"}, {SIGSTKFLT, "STKFLT"}, {SIGCHLD, "CHLD"}, {SIGCONT, "CONT"},
    {SIGSTOP, "STOP"}, {SIGTSTP, "TSTP"},     {SIGTTIN, "TTIN"}, {SIGTTOU, "TTOU"},     {SIGURG, "URG"},   {SIGXCPU, "XCPU"},
    {SIGXFSZ, "XFSZ"}, {SIGVTALRM, "VTALRM"}, {SIGPROF, "PROF"}, {SIGWINCH, "WINCH"},   {SIGPOLL, "POLL"}, {SIGPWR, "PWR"},
    {SIGSYS, "SYS"},
}};

}  // namespace

std::string_view signal_abbreviation(int signal) {
  const auto found = std::ranges::find(kAbbreviations, signal, &std::pair<int, std::string_view>::first);
  return found == kAbbreviations.end() ? std::string_view{} : found->second;
}

std::string signal_name(int signal) {
  const std::string_view name = signal_abbreviation(signal);
  return name.empty() ? "signal " + std::to_string(signal) : "SIG" + std::string(name);
}

}  // namespace ddprun
