// Implementation of subcommand.hpp: the choice of a subcommand, and `help`, `version`, `validate` and `report`. The others have
// files of their own.
#include "launcher/commands/subcommand.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/version_text.hpp"
#include "launcher/machine/detect.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/subcommand_names.hpp"
#include "launcher/own_worker/own_worker.hpp"
#include "launcher/report/report.hpp"
#include "launcher/report/report_html.hpp"

namespace ddprun {

std::optional<int> run_subcommand(std::span<const std::string> args) {
  if (args.empty()) return std::nullopt;
  const std::string& name = args.front();
  const std::span<const std::string> rest = args.subspan(1);
  if (name == "validate") return validate_config(rest);
  if (name == "init") return init_project(rest);
  if (name == "report") return show_report(rest);
  if (name == "doctor") return examine_machine(rest);
  if (name == "token") return show_token(rest);
  if (name == "ps") return list_jobs(rest);
  if (name == "status") return show_status(rest);
  if (name == "top") return watch_job(rest);
  if (name == "stop") return stop_job(rest);
  if (name == "logs") return show_logs(rest);
  if (name == "stacks") return show_stacks(rest);
  if (name == "attach") return attach_to_worker(rest);
  if (name == "link-torchrun") return link_torchrun(rest);
  if (name == "help") return show_help(rest);
  if (name == "version") return show_version(rest);
  return std::nullopt;
}

int show_help(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun help [SUBCOMMAND]";
  if (args.empty()) {
    print(help_text(CalledAs::kDdprun));
    return 0;
  }
  if (args.size() > 1) throw UsageError("'" + args[1] + "' is one too many; " + kUsage);
  const std::string& name = args.front();
  const auto known = std::find_if(kSubcommandTable.begin(), kSubcommandTable.end(),
                                  [&](const SubcommandSpec& each) { return each.name == name; });
  if (known == kSubcommandTable.end()) {
    std::string names;
    for (const SubcommandSpec& each : kSubcommandTable) names += (names.empty() ? "" : ", ") + std::string(each.name);
    throw UsageError("there is no subcommand '" + name + "', only " + names + "; " + kUsage);
  }
  if (name == "join") {
    print(join_help_text());
    return 0;
  }
  if (name == "help" || name == "version") {
    print("usage: ddprun " + name + (known->arguments.empty() ? "" : " " + std::string(known->arguments)) + "\n" +
          sentence(known->doc) + "\n");
    return 0;
  }
  return *run_subcommand(std::vector<std::string>{name, "--help"});
}

int show_version(std::span<const std::string> args) {
  if (!args.empty()) throw UsageError("'" + args[0] + "' is one too many; usage: ddprun version");
  print(version_text());
  return 0;
}

int validate_config(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun validate [--worker PROGRAM] TRAIN.json [key.path=value ...]";
  if (args.size() == 1 && (args[0] == "--help" || args[0] == "-h")) {
    print(
        std::string(kUsage) +
        "\nChecks a config and prints it with every default filled in. --worker, or the config's \"worker\", names a program\n"
        "of yours, which is asked what keys of its own it has.\n");
    return 0;
  }
  std::optional<NamedWorker> worker;
  constexpr std::string_view kWorker = "--worker";
  if (!args.empty() && args[0].starts_with("--worker=")) {
    worker = {args[0].substr(kWorker.size() + 1), "flag --worker"};
    args = args.subspan(1);
  } else if (args.size() > 1 && args[0] == kWorker) {
    worker = {args[1], "flag --worker"};
    args = args.subspan(2);
  } else if (const auto variable = process_environment()("DDPRUN_WORKER")) {
    worker = {*variable, "environment DDPRUN_WORKER"};
  }
  if (args.empty() || args[0].starts_with("-")) throw UsageError(kUsage);
  std::vector<std::string> notes;
  const TrainConfig config = load_config(args[0], {args.begin() + 1, args.end()}, &notes, [&](const std::string& by_config) {
    const auto own = find_own_worker(worker, by_config, this_machine(), std::filesystem::current_path());
    return own ? TaskConfig(own->description.keys) : TaskConfig();
  });
  for (const std::string& note : notes) std::fprintf(stderr, "ddprun: warning: %s\n", note.c_str());
  print(to_json_text(config) + "\n");
  return 0;
}

// The folder's own report, or that of the newest run below a --log-dir.
std::filesystem::path report_in(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  fs::path best = RunLayout{folder}.report();
  std::error_code error;
  if (fs::exists(best, error)) return best;
  std::optional<fs::file_time_type> newest;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const fs::path report = RunLayout{entry.path()}.report();
    const auto written = fs::last_write_time(report, error);
    if (error || (newest && written <= *newest)) continue;
    newest = written;
    best = report;
  }
  return best;
}

int show_report(std::span<const std::string> args) {
  constexpr const char* kUsage = "usage: ddprun report FOLDER [--json] [--html FILE]";
  std::string folder, page;
  bool json = false;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    if (word == "--help" || word == "-h") {
      print(std::string(kUsage) +
            "\nTells what happened in a run: rounds, failures with their evidence, and how it ended. FOLDER is "
            "its run directory,\nthe folder of its logs, or what --log-dir named: then of the newest run there.\n"
            "--html writes it, with the curves of metrics.jsonl, as one page that needs nothing else.\n");
      return 0;
    }
    if (word == "--json") {
      json = true;
    } else if (word == "--html" && page.empty()) {
      if (i + 1 == args.size()) throw UsageError(std::string("--html needs the name of a file to write; ") + kUsage);
      page = args[++i];
    } else if (word.starts_with("-") || !folder.empty()) {
      throw UsageError("'" + word + "' is one too many; " + kUsage);
    } else {
      folder = word;
    }
  }
  if (folder.empty()) throw UsageError(kUsage);
  std::filesystem::path file = folder;
  if (std::filesystem::is_directory(file)) file = report_in(file);
  std::ifstream in(file, std::ios::binary);
  if (!in)
    throw UsageError("cannot read " + file.string() + ": " + std::strerror(errno) +
                     ". Name the run directory or the log folder of a job that was started");
  std::ostringstream text;
  text << in.rdbuf();
  if (!page.empty()) {
    const std::filesystem::path curves = RunLayout{file.parent_path()}.metrics();
    std::ifstream metrics;  // a script without --run-dir has none
    std::error_code none;
    if (std::filesystem::is_regular_file(curves, none)) metrics.open(curves);
    try {
      write_file_atomically(page, report_page(text.str(), metrics, file.string()));
    } catch (const std::system_error& error) {
      throw UsageError("cannot write " + page + ": " + error.what());
    }
    return 0;
  }
  const std::string rendered = render_report(text.str(), file.string());  // this also checks the report
  print(json ? text.str() : rendered);
  return 0;
}

}  // namespace ddprun
