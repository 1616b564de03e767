// The command line of ddptrain. Its first argument is the path of a config, or one of the commands "generate", "eval",
// "predict", "tokenize" (saved_options.hpp) and "bench" (bench_options.hpp). The rank is not an option: it comes from the
// environment (environment.hpp).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/surroundings/bench_options.hpp"
#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

struct Options {
  enum class Resume { kAuto, kNever, kPath };
  std::filesystem::path config;
  std::vector<std::string> overrides;  // key.path=value
  std::filesystem::path run_dir;       // if empty, runs/<name> is used
  Resume resume = Resume::kAuto;
  std::filesystem::path resume_from;  // a checkpoint's folder, for kPath
  bool data_changed = false;          // true: resume even if the training data has changed since the run's first start
  bool standby = false;               // true: load everything, then wait until the agent assigns a rank
  bool worker_per_gpu = false;  // true if there is one worker per GPU; the worker then fails instead of falling back to the CPU
  bool live_nccl = false;       // true: survive the loss of a worker on another GPU; costs one wait for this GPU per step
  enum class Action {
    kTrain,
    kExportWeights,
    kExportAdapter,
    kGenerate,
    kEvaluate,
    kPredict,
    kTokenize,
    kBench,
    kDescribe,
    kSchema,
    kVersion,
    kHelp
  };
  Action action = Action::kTrain;
  std::filesystem::path export_from;  // folder of a checkpoint, or run directory, for kExportWeights and kExportAdapter
  std::filesystem::path export_to;    // file for kExportWeights, folder for kExportAdapter
  GenerateOptions generate;           // for kGenerate
  SavedModelOptions evaluate;         // for kEvaluate
  PredictOptions predict;             // for kPredict
  TokenizeOptions tokenize;           // for kTokenize
  BenchOptions bench;                 // for kBench
  std::string help;                   // the help text, for kHelp
};

// Parses the arguments after the program's name. Throws UsageError.
Options parse_options(const std::vector<std::string>& arguments);

}  // namespace ddprun::trainer
