// `ddprun plot`: plots a metric of several runs, by default the training loss, in one SVG chart. run_subcommand() calls it.
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
#include "launcher/report_page/plot.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;

std::ifstream open_metrics(const std::string& word) {
  const fs::path metrics = fs::is_directory(word) ? RunLayout{word}.metrics() : fs::path(word);
  std::error_code error;
  std::ifstream in;
  if (fs::is_regular_file(metrics, error)) in.open(metrics);
  if (!in.is_open()) {
    throw UsageError("cannot read " + metrics.string() +
                     ": expected a run directory with metrics.jsonl (a script must use --run-dir and report its steps)");
  }
  return in;
}

PlottedRun read_run(const std::string& word, const std::string& metric) {
  std::ifstream in = open_metrics(word);
  const fs::path named = fs::path(word).lexically_normal();
  return {printable((named.has_filename() ? named : named.parent_path()).string()), read_metric(in, metric)};
}

[[noreturn]] void refuse_metric(const std::vector<std::string>& runs, const std::string& metric) {
  std::set<std::string> names;
  for (const std::string& word : runs) {
    std::ifstream in = open_metrics(word);
    for (const std::string& name : metric_names_in(in)) names.insert(name);
  }
  std::string known;
  for (const std::string& name : names) known += (known.empty() ? "" : ", ") + printable(name);
  throw UsageError("no metrics.jsonl of these runs contains the metric '" + printable(metric) + "'" +
                   (known.empty() ? "" : "; --figure accepts: " + known));
}

}  // namespace

int plot_runs(const SubcommandArguments& arguments) {
  const std::vector<std::string>& words = arguments.words();
  const std::string metric = arguments.value("--figure").value_or("loss");
  const std::string output = arguments.value("--output").value_or("plot.svg");
  if (words.empty()) arguments.refuse("no run directory was given");
  if (words.size() > kMaxPlotted) {
    throw UsageError("at most " + std::to_string(kMaxPlotted) + " runs can be drawn in one plot, but " +
                     std::to_string(words.size()) + " were given");
  }
  std::vector<PlottedRun> runs;
  bool any = false;
  for (const std::string& word : words) {
    runs.push_back(read_run(word, metric));
    any = any || !runs.back().metric.points.empty();
  }
  if (!any) refuse_metric(words, metric);
  try {
    if (write_named_file(output, plot_of(metric, runs)))
      print("the plot is " + fs::absolute(output).lexically_normal().string() + "\n");
  } catch (const std::system_error& error) {
    throw UsageError("cannot write " + output + ": " + error.what());
  }
  return 0;
}

}  // namespace ddprun
