#include "launcher/hosts/ssh_problem.hpp"

#include "common/base/printable.hpp"

namespace ddprun {
namespace {

constexpr int kOfSsh = 255;            // ssh itself failed
constexpr int kCommandNotFound = 127;  // a POSIX shell found no such program
constexpr int kCommandNotStarted = 126;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// The last line that is not empty; the earlier lines are often a greeting of the host.
std::string last_line(std::string_view text) {
  constexpr std::size_t kMaxBytes = 200;
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  const std::size_t line_end = text.rfind('\n');
  if (line_end != std::string_view::npos) text.remove_prefix(line_end + 1);
  return printable(cut_to(text, kMaxBytes));
}

// Returns a colon and the last line, or "" if there is no line.
std::string quoted(std::string_view errors) {
  const std::string line = last_line(errors);
  return line.empty() ? "" : ": " + line;
}

}  // namespace

SshProblem ssh_problem(const SshEnd& end, const std::string& target, const std::string& program, const std::string& version) {
  const std::string_view errors = end.errors;
  if (end.greeted) return {.text = "ssh ended with exit code " + std::to_string(end.exit_code) + quoted(errors)};
  if (end.exit_code == kOfSsh) {
    if (has(errors, "Could not resolve hostname"))
      return {
          .text = "unknown host: expected a name with an address, or a Host of ~/.ssh/config; correct --hosts" + quoted(errors),
          .is_usage = true};
    if (has(errors, "Host key verification failed") || has(errors, "IDENTIFICATION HAS CHANGED"))
      return {.text = "the host key is unknown or has changed: run ssh " + target + " once, and check the key that it shows",
              .is_usage = true};
    if (has(errors, "Permission denied") || has(errors, "Too many authentication failures"))
      return {.text = "the login was refused: expected a key that works without a prompt; use ssh-copy-id " + target +
                      ", or add the key to ssh-agent" + quoted(errors),
              .is_usage = true};
    return {.text = "ssh could not connect" + quoted(errors)};
  }
  if (end.exit_code == kCommandNotFound || end.exit_code == kCommandNotStarted)
    return {.text = "ddprun was not found: expected " + printable(program) +
                    ", or a ddprun on the PATH of ssh commands; install version " + version + " there" + quoted(errors),
            .is_usage = true};
  return {.text = "the ddprun of that host did not start as expected (exit code " + std::to_string(end.exit_code) +
                  "): expected version " + version + ", as on this machine; install it there" + quoted(errors),
          .is_usage = true};
}

}  // namespace ddprun
