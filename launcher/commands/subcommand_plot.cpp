// `ddprun plot`: the losses of several runs in one chart, as an SVG. run_subcommand() calls it.
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/printable.hpp"
#include "common/run_directory/run_directory.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/print.hpp"
#include "launcher/commands/subcommand.hpp"
#include "launcher/report/plot.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlotUsage = "usage: ddprun plot RUN... [--figure NAME] [--output FILE]";

struct PlotRequest {
  std::vector<std::string> runs;
  std::string figure = "loss";
  std::string output = "plot.svg";
};

PlotRequest parse_plot(std::span<const std::string> args) {
  PlotRequest request;
  for (std::size_t i = 0; i < args.size(); ++i) {
    const std::string& word = args[i];
    const bool figure = word == "--figure";
    if (figure || word == "--output") {
      if (i + 1 == args.size()) throw UsageError(word + " needs a value; " + kPlotUsage);
      (figure ? request.figure : request.output) = args[++i];
    } else if (word.starts_with("-")) {
      throw UsageError("'" + word + "' is one too many; " + kPlotUsage);
    } else {
      request.runs.push_back(word);
    }
  }
  if (request.runs.empty()) throw UsageError(std::string("no run was named; ") + kPlotUsage);
  if (request.runs.size() > kMostPlotted) {
    throw UsageError("at most " + std::to_string(kMostPlotted) + " runs fit one plot, " + std::to_string(request.runs.size()) +
                     " were named");
  }
  return request;
}

std::ifstream open_metrics(const std::string& word) {
  const fs::path metrics = fs::is_directory(word) ? RunLayout{word}.metrics() : fs::path(word);
  std::error_code error;
  std::ifstream in;
  if (fs::is_regular_file(metrics, error)) in.open(metrics);
  if (!in.is_open()) {
    throw UsageError("cannot read " + metrics.string() +
                     ": name run directories; a script writes that file with --run-dir when it " + "tells its steps");
  }
  return in;
}

PlottedRun read_run(const std::string& word, const std::string& figure) {
  std::ifstream in = open_metrics(word);
  const fs::path named = fs::path(word).lexically_normal();
  return {printable((named.has_filename() ? named : named.parent_path()).string()), read_figure(in, figure)};
}

[[noreturn]] void refuse_figure(const PlotRequest& request) {
  std::set<std::string> names;
  for (const std::string& word : request.runs) {
    std::ifstream in = open_metrics(word);
    for (const std::string& name : figures_in(in)) names.insert(name);
  }
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + printable(name);
  throw UsageError("no run has a figure '" + printable(request.figure) + "' in a line of a step or an evaluation" +
                   (known.empty() ? "" : "; --figure takes one of these: " + known));
}

}  // namespace

int plot_runs(std::span<const std::string> args) {
  if (!args.empty() && (args.front() == "--help" || args.front() == "-h")) {
    print(std::string(kPlotUsage) +
          "\nDraws a figure of metrics.jsonl of each run over its steps, all in one SVG file. RUN is a run directory."
          "\n  --figure NAME  loss, or any other that a step or an evaluation has: lr, accuracy, samples_per_s"
          "\n  --output FILE  plot.svg\n");
    return 0;
  }
  const PlotRequest request = parse_plot(args);
  std::vector<PlottedRun> runs;
  bool any = false;
  for (const std::string& word : request.runs) {
    runs.push_back(read_run(word, request.figure));
    any = any || !runs.back().points.empty();
  }
  if (!any) refuse_figure(request);
  try {
    if (write_named_file(request.output, plot_of(request.figure, runs)))
      print("the plot is " + fs::absolute(request.output).lexically_normal().string() + "\n");
  } catch (const std::system_error& error) {
    throw UsageError("cannot write " + request.output + ": " + error.what());
  }
  return 0;
}

}  // namespace ddprun
