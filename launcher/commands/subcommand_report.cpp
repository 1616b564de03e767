// `ddprun report`: shows the events of a run as text or as an HTML page, which --follow rewrites while the job runs. If no
// folder is given, it shows the newest run (report_search.hpp). run_subcommand() calls it.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/print.hpp"
#include "common/system/write_all.hpp"
#include "launcher/commands/report_follower.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/report/report.hpp"
#include "launcher/report/step_parts.hpp"
#include "launcher/report_page/page.hpp"
#include "launcher/report_page/report_search.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

// Starts xdg-open if there is a desktop. Returns false if the page cannot be shown. With --follow, the signals that stop this
// command are blocked. The browser must not inherit the blocked signals, since they could then not stop it.
bool open_in_browser(const std::string& page) {
  if (std::getenv("DISPLAY") == nullptr && std::getenv("WAYLAND_DISPLAY") == nullptr) return false;
  std::string name = "xdg-open";
  std::string argument = page;
  char* const argv[] = {name.data(), argument.data(), nullptr};
  pid_t pid = 0;
  int status = 0;
  sigset_t none;
  ::sigemptyset(&none);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  const int error = ::posix_spawnp(&pid, name.c_str(), nullptr, &attributes, argv, environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) return false;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

[[noreturn]] void fail_to_write(const fs::path& page, const std::system_error& error) {
  throw UsageError("cannot write " + page.string() + ": " + error.what() + "; choose another file with --html FILE");
}

// A file that the user named with --html is opened and written, whatever its type. The default page next to the report is
// instead written to a temporary file and renamed. The reason is that the folder's owner may have created a link with the
// page's name.
void write_page(bool is_named, const fs::path& page, const std::string& report, const fs::path& file) {
  try {
    CurveReader curves(RunLayout{file.parent_path()}.metrics());  // a script without --run-dir has no metrics
    const std::string text = report_page({.report = report, .curves = curves.read(), .name = file.string()});
    is_named ? static_cast<void>(write_named_file(page, text)) : write_file_atomically(page, text);
  } catch (const std::system_error& error) {
    fail_to_write(page, error);
  }
}

std::string text_of_report(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw UsageError("cannot read " + file.string() + ": " + std::strerror(errno) +
                     ". Expected the run directory or the log folder of a job that was started");
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// The page to write: the file that --html names, else report.html next to the report.
struct ChosenPage {
  bool is_named = false;
  fs::path file;
  std::string place() const { return fs::absolute(file).lexically_normal().string(); }
  // Opens the page if there is a desktop. Returns a line for the user.
  std::string opened() const { return (open_in_browser(place()) ? "opened " : "the page is ") + place() + "\n"; }
};
ChosenPage chosen_page(const SubcommandArguments& arguments, const fs::path& report) {
  const std::string named = arguments.value("--html", "the name of the page to write").value_or("");
  return {!named.empty(), named.empty() ? report.parent_path() / "report.html" : fs::path(named)};
}

[[noreturn]] void refuse_without_report(const SubcommandArguments& arguments) {
  arguments.refuse("no report was found in this folder, in its folder runs or in the folder for temporary files");
}

int write_page_once(const SubcommandArguments& arguments, const fs::path& file) {
  const ChosenPage page = chosen_page(arguments, file);
  write_page(page.is_named, page.file, text_of_report(file), file);
  if (arguments.has("--open")) {
    print(page.opened());
  } else if (!page.is_named) {
    print("the page is " + page.place() + "\n");
  }
  return 0;
}

int follow_page(const SubcommandArguments& arguments, const std::string& folder) {
  FollowedRun run = find_followed_run(folder);
  if (run.report.empty()) refuse_without_report(arguments);
  if (!run.job) {
    write_page_once(arguments, run.report);
    write_all(STDERR_FILENO, "ddprun report: --follow has no effect, since the job does not run on this machine: the page " +
                                 chosen_page(arguments, run.report).place() + " was written once\n");
    return 0;
  }
  ChosenPage page = chosen_page(arguments, run.report);
  if (!page.is_named && run.job->status.value("run_dir", "").empty())
    arguments.refuse(
        "this job has no run directory, and its temporary report is removed after a success: name the page with "
        "--html FILE");
  page.file = replaceable_page(page.file);
  try {
    return follow_report(std::move(run), page.file, [&] {
      const std::string line = arguments.has("--open") ? page.opened() : "the page is " + page.place() + "\n";
      print(line.substr(0, line.size() - 1) + ", which is rewritten until the job ends\n");
    });
  } catch (const std::system_error& error) {
    fail_to_write(page.file, error);
  }
}

}  // namespace

int show_report(const SubcommandArguments& arguments) {
  const std::string folder = arguments.only_word("FOLDER");
  const bool writes_page = arguments.has("--html") || arguments.has("--open");
  if (arguments.has("--json") && writes_page)
    arguments.refuse("--json cannot be combined with --html or --open: --json prints the report, the other two write a page");
  if (arguments.has("--follow")) {
    if (!writes_page)
      arguments.refuse(
          "--follow rewrites a page while the job runs: add --html FILE, or --open; to follow the job on this "
          "terminal, use ddprun top");
    return follow_page(arguments, folder);
  }
  fs::path file = folder.empty() ? report_of_newest_run() : fs::path(folder);
  if (file.empty()) refuse_without_report(arguments);
  if (fs::is_directory(file)) file = report_in(file);
  if (writes_page) return write_page_once(arguments, file);
  const std::string text = text_of_report(file);
  const StepParts steps = step_parts_of(RunLayout{file.parent_path()}.metrics());
  const std::string rendered = render_report(text, file.string(), steps.text(), steps.memory_text(),
                                             steps.skipped_text());              // throws if the report's format is invalid
  print(arguments.has("--json") ? text : printable(rendered, LineEnds::kKeep));  // escaped, since it contains worker output
  return 0;
}

}  // namespace ddprun
