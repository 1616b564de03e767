#include "trainer/surroundings/options.hpp"

#include <CLI/CLI.hpp>

#include <optional>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/surroundings/parse_arguments.hpp"

namespace ddprun::trainer {
namespace {

// The number of values that CLI11 accepts for an option. It is larger than the real limit, which parse_options() checks.
constexpr int kAnyNumber = 1'000;

// Parses the options of a command such as `generate`. Returns nullopt if the first argument is not a command.
std::optional<Options> options_of_command(const std::vector<std::string>& arguments) {
  Options options;
  const auto follow = [&](Options::Action action, auto parse, auto& to) {
    auto parsed = parse({arguments.begin() + 1, arguments.end()}, options.help);
    options.action = parsed ? action : Options::Action::kHelp;
    if (parsed) to = std::move(*parsed);
    return options;
  };
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (command == "generate") return follow(Options::Action::kGenerate, parse_generate_options, options.generate);
  if (command == "eval") return follow(Options::Action::kEvaluate, parse_eval_options, options.evaluate);
  if (command == "predict") return follow(Options::Action::kPredict, parse_predict_options, options.predict);
  if (command == "bench") return follow(Options::Action::kBench, parse_bench_options, options.bench);
  if (command == "tokenize") return follow(Options::Action::kTokenize, parse_tokenize_options, options.tokenize);
  return std::nullopt;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  if (auto command = options_of_command(arguments)) return *command;
  Options options;
  std::string config;
  std::string resume = "auto";
  bool version = false;

  CLI::App app(
      "Trains the model of a train.json as one worker of a job. ddprun and torchrun identify the worker by the environment "
      "variables RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT; without them the job has one "
      "worker.");
  app.footer(
      "Commands, each with a separate --help:\n"
      "  ddptrain generate   continues a text with a saved language model\n"
      "  ddptrain eval       evaluates a saved model on its test set\n"
      "  ddptrain predict    computes predictions with a saved model for lines of JSON\n"
      "  ddptrain tokenize   converts a text to a token file\n"
      "  ddptrain bench      measures a collective between the workers of a job");
  app.name("ddptrain");
  app.add_option("config", config, "the train.json")->type_name("train.json");
  app.add_option("overrides", options.overrides, "key.path=value: replaces a value in the config")->type_name("key=value");
  app.add_option("--run-dir", options.run_dir, "folder for metrics and checkpoints (default: runs/<name>)")->type_name("DIR");
  app.add_option(
         "--resume", resume,
         "auto: resume from the newest valid checkpoint of the run directory; never: start at step 0; PATH: resume from "
         "this checkpoint folder")
      ->type_name("auto|never|PATH");
  app.add_flag("--data-changed", options.data_changed,
               "resume even if the data differs from the data that the run started with");
  app.add_flag("--standby", options.standby,
               "start as a standby, which waits until the ddprun agent assigns a rank to it; set by ddprun");
  app.add_flag(
      "--worker-per-gpu", options.worker_per_gpu,
      "one worker was started per GPU: with \"device\": \"auto\", a worker that cannot use its GPU exits with an error "
      "instead of training on the CPU; set by ddprun");
  app.add_flag(
      "--live-nccl", options.live_nccl,
      "keep this worker running when a worker on another GPU is lost, which requires a wait for the GPU in each step; set "
      "by ddprun");
  std::vector<std::string> exported;
  app.add_option(
         "--export-weights", exported,
         "write the weights of a checkpoint, or of the newest valid checkpoint of a run directory, and exit. A FILE that "
         "ends in .safetensors contains the weights; with another name, a language model is written as a folder that "
         "Hugging Face's from_pretrained() loads")
      ->type_name("CHECKPOINT FILE")
      ->option_text("CHECKPOINT FILE [train.json]")
      ->expected(2, kAnyNumber);
  std::vector<std::string> adapter;
  app.add_option("--export-adapter", adapter,
                 "write the low-rank updates of a run with model.lora to a folder in the format of the peft package and exit")
      ->type_name("CHECKPOINT FOLDER")
      ->option_text("CHECKPOINT FOLDER [train.json]")
      ->expected(2, kAnyNumber);
  bool describe = false;
  app.add_flag("--describe", describe,
               "print a description of this program and its additional config keys as JSON; used by ddprun");
  bool schema = false;
  app.add_flag("--schema", schema, "print the JSON Schema of train.json for this program; editors use it");
  app.add_flag("--version", version, "print the versions of ddptrain and of its LibTorch");

  if (!parse_arguments(app, arguments, options.help)) {
    options.action = Options::Action::kHelp;
    return options;
  }
  if (version) {
    options.action = Options::Action::kVersion;
    return options;
  }
  if (describe || schema) {
    options.action = describe ? Options::Action::kDescribe : Options::Action::kSchema;
    return options;
  }
  const auto exports = [&](Options::Action action, const std::vector<std::string>& values, const std::string& usage) {
    if (!options.overrides.empty()) throw UsageError(usage + " takes no override, found " + options.overrides.front());
    const bool at_the_end = values.size() > 2;  // CLI11 treats positional arguments after the option as values of the option
    if (values.size() > 3) throw UsageError(usage + " takes no further argument, found " + values[3]);
    if (at_the_end && !config.empty()) throw UsageError(usage + " takes one config, found " + config + " as well");
    options.config = at_the_end ? values[2] : config;
    options.action = action;
    options.export_from = values.at(0);
    options.export_to = values.at(1);
    return options;
  };
  if (!exported.empty())
    return exports(Options::Action::kExportWeights, exported, "--export-weights CHECKPOINT FILE [train.json]");
  if (!adapter.empty())
    return exports(Options::Action::kExportAdapter, adapter, "--export-adapter CHECKPOINT FOLDER [train.json]");
  if (config.empty())
    throw UsageError(
        "expected a train.json. Usage: ddptrain [--run-dir DIR] [--resume auto|never|PATH] train.json [key=value ...]");
  options.config = config;
  if (resume == "never") {
    options.resume = Options::Resume::kNever;
  } else if (resume != "auto") {
    options.resume = Options::Resume::kPath;
    std::error_code not_there;  // this error is ignored here: it is reported when the path is read
    // the link checkpoints/latest may change later, so its target is stored
    options.resume_from = std::filesystem::canonical(resume, not_there);
    if (not_there) options.resume_from = resume;
  }
  return options;
}

}  // namespace ddprun::trainer
