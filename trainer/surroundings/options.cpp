#include "trainer/surroundings/options.hpp"

#include <CLI/CLI.hpp>

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/surroundings/unknown_flag.hpp"

namespace ddprun::trainer {
namespace {

constexpr int kAnyNumber = 1'000;  // number of arguments
constexpr std::array<std::string_view, 12> kFlags{"--run-dir",        "--resume",    "--data-changed",   "--standby",
                                                  "--worker-per-gpu", "--live-nccl", "--export-weights", "--export-adapter",
                                                  "--describe",       "--schema",    "--version",        "--help"};

// Options of a command, if the first argument names one.
std::optional<Options> options_of_command(const std::vector<std::string>& arguments) {
  Options options;
  const auto follow = [&](Options::Action action, auto parse, auto& to) {
    auto parsed = parse({arguments.begin() + 1, arguments.end()}, options.help);
    options.action = parsed ? action : Options::Action::kSayHelp;
    if (parsed) to = std::move(*parsed);
    return options;
  };
  const std::string command = arguments.empty() ? "" : arguments.front();
  if (command == "generate") return follow(Options::Action::kGenerate, parse_generate_options, options.generate);
  if (command == "eval") return follow(Options::Action::kEvaluate, parse_eval_options, options.evaluate);
  if (command == "predict") return follow(Options::Action::kPredict, parse_predict_options, options.predict);
  if (command == "tokenize") return follow(Options::Action::kTokenize, parse_tokenize_options, options.tokenize);
  return std::nullopt;
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  if (auto command = options_of_command(arguments)) return *command;
  Options options;
  std::string config;
  std::string run_dir;
  std::string resume = "auto";
  bool version = false;

  CLI::App app(
      "Trains what a train.json describes, as one worker of a job. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
      "MASTER_ADDR and MASTER_PORT, as ddprun and torchrun set them, say which one; without them it is a job of one.");
  app.footer(
      "Commands, each with a --help of its own:\n"
      "  ddptrain generate   lets a language model that is saved continue a text\n"
      "  ddptrain eval       measures a model that is saved on its test set\n"
      "  ddptrain predict    asks a model that is saved, with lines of JSON\n"
      "  ddptrain tokenize   makes a token file of a text");
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
      ->option_text("CHECKPOINT FILE [train.json]")
      ->expected(2, kAnyNumber);
  std::vector<std::string> adapter;
  app.add_option("--export-adapter", adapter,
                 "write the low-rank updates of a run with model.lora to a folder, as the peft package does, and train nothing")
      ->type_name("CHECKPOINT FOLDER")
      ->option_text("CHECKPOINT FOLDER [train.json]")
      ->expected(2, kAnyNumber);
  bool describe = false;
  app.add_flag("--describe", describe, "what this program is and which keys of its own it has, as JSON; ddprun asks so");
  bool schema = false;
  app.add_flag("--schema", schema, "JSON Schema of this program's train.json, for editors");
  app.add_flag("--version", version, "version of ddptrain and of its LibTorch");

  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // the order that CLI11 expects
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    options.action = Options::Action::kSayHelp;
    options.help = app.help();
    return options;
  } catch (const CLI::ParseError& error) {
    refuse_unknown_flag(arguments, kFlags, "ddptrain --help");
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
  const auto exports = [&](Options::Action action, const std::vector<std::string>& told, const std::string& usage) {
    if (!options.overrides.empty()) throw UsageError(usage + " takes no override, found " + options.overrides.front());
    const bool at_the_end = told.size() > 2;  // CLI11 counts positional arguments behind the option as its values
    if (told.size() > 3) throw UsageError(usage + " takes nothing more, found " + told[3]);
    if (at_the_end && !config.empty()) throw UsageError(usage + " takes one config, found " + config + " as well");
    options.config = at_the_end ? told[2] : config;
    options.action = action;
    options.export_from = told.at(0);
    options.export_to = told.at(1);
    return options;
  };
  if (!exported.empty())
    return exports(Options::Action::kExportWeights, exported, "--export-weights CHECKPOINT FILE [train.json]");
  if (!adapter.empty())
    return exports(Options::Action::kExportAdapter, adapter, "--export-adapter CHECKPOINT FOLDER [train.json]");
  if (config.empty())
    throw UsageError("which config? Usage: ddptrain [--run-dir DIR] [--resume auto|never|PATH] train.json [key=value ...]");
  options.config = config;
  options.run_dir = run_dir;
  if (resume == "never") {
    options.resume = Options::Resume::kNever;
  } else if (resume != "auto") {
    options.resume = Options::Resume::kPath;
    std::error_code not_there;                                            // reported later, when the checkpoint is read
    options.resume_from = std::filesystem::canonical(resume, not_there);  // checkpoints/latest is a link that may change
    if (not_there) options.resume_from = resume;
  }
  return options;
}

}  // namespace ddprun::trainer
