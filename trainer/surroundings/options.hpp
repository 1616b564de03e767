// The command line of ddptrain. The worker's place comes from the environment, the training task from the config. As first
// argument "generate", "eval", "predict" and "tokenize" are commands (saved_options.hpp) and not configs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "trainer/surroundings/saved_options.hpp"

namespace ddprun::trainer {

struct Options {
  enum class Resume { kAuto, kNever, kPath };
  std::filesystem::path config;
  std::vector<std::string> overrides;  // key.path=value
  std::filesystem::path run_dir;       // empty: runs/<name>
  Resume resume = Resume::kAuto;
  std::filesystem::path resume_from;  // kPath
  bool data_changed = false;          // accept data that differs from that of the run's beginning
  bool standby = false;               // wait for a rank over the worker channel
  bool worker_per_gpu = false;        // started for a GPU: do not fall back to the CPU
  bool live_nccl = false;             // NCCL groups can be broken, so each step waits for its GPU
  enum class Action {
    kTrain,
    kExportWeights,
    kExportAdapter,
    kGenerate,
    kEvaluate,
    kPredict,
    kTokenize,
    kDescribe,
    kSaySchema,
    kSayVersion,
    kSayHelp
  };
  Action action = Action::kTrain;
  std::filesystem::path export_from;  // kExportWeights, kExportAdapter: a checkpoint's folder, or a run directory
  std::filesystem::path export_to;
  GenerateOptions generate;    // kGenerate
  SavedModelOptions evaluate;  // kEvaluate
  PredictOptions predict;      // kPredict
  TokenizeOptions tokenize;    // kTokenize
  std::string help;            // kSayHelp
};

// Throws UsageError.
Options parse_options(const std::vector<std::string>& arguments);

}  // namespace ddprun::trainer
