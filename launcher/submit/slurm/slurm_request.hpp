// The options of `ddprun submit --slurm`, and the request that they describe. subcommand_submit.cpp uses it. The code is pure:
// the caller passes the paths and the default names.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launcher/options/option_spellings.hpp"
#include "launcher/options/options_table.hpp"
#include "launcher/submit/slurm/slurm_batch.hpp"

namespace ddprun {

// Returns the options that `submit` has in addition to the options of the launcher.
std::span<const OptionSpec> slurm_options();

// The command line of `submit`, divided into its parts. `own` also contains the options of the launcher that need special
// treatment, such as --run-dir.
struct SubmitWords {
  struct Option {
    std::string name;   // without dashes
    std::string value;  // empty for a flag
  };
  std::vector<Option> own;
  std::vector<std::string> launcher;  // "--name" or "--name=value", for the agents
  std::vector<std::string> program;   // the config or program, and its arguments

  bool has(std::string_view name) const;
  // Returns the last value of the option; nullopt if the option is not given.
  std::optional<std::string> value(std::string_view name) const;
};

// Divides the arguments after `ddprun submit`. As in every ddprun command, options end at a script or program, and may follow a
// train.json. Throws UsageError for an unknown option, and for one that contradicts a Slurm job, such as --master-addr.
SubmitWords split_submit_words(std::span<const std::string> args);

// The paths and names that the command line does not contain.
struct SubmitPlace {
  std::filesystem::path ddprun;  // absolute path of this program
  std::filesystem::path folder;  // the current directory
  std::string default_name;      // name of the config, or of the script without its ending
};

// Returns the request for the batch file. Throws UsageError if a value is out of range. The token's file is RUN_DIR/token if
// the job has several nodes and --token-file is not given.
SlurmRequest slurm_request(const SubmitWords& words, const SubmitPlace& place);

// The options of `submit --slurm --after`, which the batch file calls.
struct AfterRequest {
  int code = 0;
  std::filesystem::path run_dir;
  std::chrono::seconds signal_before{120};
  int max_failures = 3;
  int max_timeouts = 3;
};
AfterRequest after_request(const SubmitWords& words, const std::filesystem::path& folder);

}  // namespace ddprun
