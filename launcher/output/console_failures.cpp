// See console_failures.hpp.
#include "launcher/output/console_failures.hpp"

#include <algorithm>

#include "common/base/signal_name.hpp"
#include "common/system/local_time.hpp"
#include "launcher/events/event_json.hpp"
#include "launcher/events/progress.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kWidest = 60;
constexpr std::size_t kNamedRanks = 8;

// The job's name as torchrun writes it: the script as typed, the module, or the program's path.
std::string name_of_job(const Plan& plan) {
  const auto& command = plan.command;
  if (plan.kind == Plan::Kind::kProgram) return command.empty() ? plan.title : command.front();
  for (std::size_t i = 1; i < command.size(); ++i) {
    if (!command[i].starts_with("-")) return command[i];
  }
  return plan.title;
}

// The text after `traceback : `, with later lines indented.
std::string traceback(const Failure& failure) {
  std::string text = failure.call_stack.empty() ? failure.message : failure.call_stack;
  while (text.ends_with('\n')) text.pop_back();
  if (!text.empty() && !failure.error_file.empty()) {
    std::string indented;
    for (const char c : text) indented += c == '\n' ? std::string("\n  ") : std::string(1, c);
    return indented;
  }
  if (failure.status && failure.status->signal != 0) {
    return "Signal " + std::to_string(failure.status->signal) + " (" + signal_name(failure.status->signal) +
           ") received by PID " + std::to_string(failure.pid);
  }
  return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

std::string described(const Failure& failure, std::size_t index) {
  const int code = !failure.status ? 0 : failure.status->signal != 0 ? -failure.status->signal : failure.status->code;
  // torchrun prints the signal since 2.12
  const std::string signal = code < 0 ? " (" + signal_name(failure.status->signal) + ")" : "";
  const std::string local_rank = std::to_string(failure.local_rank >= 0 ? failure.local_rank : failure.rank);
  return "[" + std::to_string(index) + "]:\n" +                                                                     //
         "  time      : " + local_time(failure.time_ns, '_') + "\n" +                                               //
         "  host      : " + failure.host + "\n" +                                                                   //
         "  rank      : " + std::to_string(failure.rank) + " (local_rank: " + local_rank + ")\n" +                  //
         "  exitcode  : " + std::to_string(code) + " (pid: " + std::to_string(failure.pid) + ")" + signal + "\n" +  //
         "  error_file: " + (failure.error_file.empty() ? "<N/A>" : failure.error_file) + "\n" +                    //
         "  traceback : " + traceback(failure) + "\n";
}

std::size_t longest_line(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    longest = std::max(longest, end - begin);
    begin = end + 1;
  }
  return longest;
}

}  // namespace

std::string consequence_line(const Failure& failure) {
  return "then rank " + std::to_string(failure.rank) + ": " + (failure.status ? describe(*failure.status) : failure.message);
}

std::vector<std::string> early_leavers(const std::map<int, std::int64_t>& left, const Failure& first) {
  std::string ranks;
  std::size_t count = 0;
  std::int64_t earliest = first.time_ns;
  for (const auto& [rank, time_ns] : left) {
    if (time_ns >= first.time_ns) continue;
    if (++count <= kNamedRanks) ranks += (count > 1 ? ", " : "") + std::to_string(rank);
    earliest = std::min(earliest, time_ns);
  }
  if (count == 0) return {};
  if (count > kNamedRanks) ranks += " and " + std::to_string(count - kNamedRanks) + " more";
  return {(count == 1 ? "rank " + ranks + " had" : "ranks " + ranks + " had") + " ended before that with exit code 0, " +
          (count == 1 ? "" : "the first of them ") + format_duration(static_cast<double>(first.time_ns - earliest) / 1e9) +
          " earlier"};
}

bool read_past_the_end(const Failure& failure) {
  const auto says = [](const std::string& text) {
    return text.find("EOFError") != std::string::npos || text.find("bdb.BdbQuit") != std::string::npos;
  };
  return says(failure.message) || std::ranges::any_of(failure.stderr_tail, says);
}

std::string failure_summary(const Plan& plan, const RoundFailed& event) {
  const std::string title = name_of_job(plan) + " FAILED";
  const std::string root = described(event.first, 0);
  std::string others;
  std::size_t index = 0;
  for (const Failure& failure : event.consequences) {
    if (failure.cause != Cause::kStopped || plan.verbosity >= 1) others += described(failure, ++index);
  }
  if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
  const std::size_t width = std::min(kWidest, std::max({title.size(), longest_line(root), longest_line(others)}));
  const std::string border(width, '='), line = std::string(width, '-') + "\n";
  return border + "\n" + title + "\n" + line + "Failures:\n" + others + line + "Root Cause (first observed failure):\n" + root +
         border;
}

}  // namespace ddprun
