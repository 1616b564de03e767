#include "trainer/surroundings/options.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <string_view>

#include "common/base/error.hpp"
#include "common/base/suggest.hpp"

namespace ddprun::trainer {
namespace {

constexpr std::array<std::string_view, 11> kFlags{
    "--run-dir",  "--resume", "--data-changed", "--standby", "--worker-per-gpu", "--live-nccl", "--export-weights",
    "--describe", "--schema", "--version",      "--help"};

// CLI11 only says that it doesn't know a flag; the nearest one is ours to name.
void refuse_unknown_flag(const std::vector<std::string>& arguments) {
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--")) {
      if (argument.starts_with("-") && argument != "-h") throw UsageError("unknown flag " + argument + "; see ddptrain --help");
      continue;
    }
    const std::string flag = argument.substr(0, argument.find('='));
    if (std::find(kFlags.begin(), kFlags.end(), flag) == kFlags.end()) {
      throw UsageError("unknown flag " + flag + "." + did_you_mean(flag, kFlags) + " See ddptrain --help");
    }
  }
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  std::string config;
  std::string run_dir;
  std::string resume = "auto";
  bool version = false;

  CLI::App app(
      "Trains what a train.json describes, as one worker of a job. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
      "MASTER_ADDR and MASTER_PORT, as ddprun and torchrun set them, say which one; without them it is a job of one.");
  app.name("ddptrain");
  app.add_option("config", config, "the train.json")->type_name("train.json");
  app.add_option("overrides", options.overrides, "key.path=value: replaces a value of the config")->type_name("key=value");
  app.add_option("--run-dir", run_dir, "where metrics and checkpoints go (default: runs/<name>)")->type_name("DIR");
  app.add_option("--resume", resume,
                 "auto: from the newest valid checkpoint of the run directory; never; or a checkpoint's folder")
      ->type_name("auto|never|PATH");
  app.add_flag("--data-changed", options.data_changed, "go on although the data is not what the run began with");
  app.add_flag("--standby", options.standby, "load everything and wait for a rank over the worker channel; ddprun says so");
  app.add_flag(
      "--worker-per-gpu", options.worker_per_gpu,
      "there is a worker for each GPU: with \"device\": \"auto\", one that cannot use its own ends with the reason instead "
      "of training on the CPU; ddprun says so");
  app.add_flag("--live-nccl", options.live_nccl,
               "stay when a peer on another GPU is lost, and wait for the GPU in each step for that; ddprun says so");
  std::vector<std::string> exported;
  app.add_option(
         "--export-weights", exported,
         "write the weights of a checkpoint, or of a run directory's newest valid one, to a safetensors file, and train "
         "nothing")
      ->type_name("CHECKPOINT FILE")
      ->expected(2);
  bool describe = false;
  app.add_flag("--describe", describe, "what this program is and which keys of its own it has, as JSON; ddprun asks so");
  bool schema = false;
  app.add_flag("--schema", schema, "JSON Schema of this program's train.json, for editors");
  app.add_flag("--version", version, "version of ddptrain and of its LibTorch");

  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // what CLI11 wants
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    options.action = Options::Action::kSayHelp;
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    refuse_unknown_flag(arguments);
    throw UsageError(std::string(error.what()) + "; see ddptrain --help");
  }
  if (version) {
    options.action = Options::Action::kSayVersion;
    return options;
  }
  if (describe || schema) {
    options.action = describe ? Options::Action::kDescribe : Options::Action::kSaySchema;
    return options;
  }
  if (!exported.empty()) {
    if (!config.empty()) throw UsageError("--export-weights CHECKPOINT FILE takes no config, found " + config);
    options.action = Options::Action::kExportWeights;
    options.export_from = exported.front();
    options.export_to = exported.back();
    return options;
  }
  if (config.empty())
    throw UsageError("which config? Usage: ddptrain [--run-dir DIR] [--resume auto|never|PATH] train.json [key=value ...]");
  options.config = config;
  options.run_dir = run_dir;
  if (resume == "never") {
    options.resume = Options::Resume::kNever;
  } else if (resume != "auto") {
    options.resume = Options::Resume::kPath;
    std::error_code not_there;                                            // said when it is read
    options.resume_from = std::filesystem::canonical(resume, not_there);  // checkpoints/latest is a link
    if (not_there) options.resume_from = resume;
  }
  return options;
}

}  // namespace ddprun::trainer
