// The batch file of `ddprun submit --slurm`, as text. The code is pure: the request contains every path and every value.
//
// Users read the batch file, change it, and submit it again with sbatch. The file therefore contains no logic, and above each
// group of lines a comment with the reason. The last command is `ddprun submit --slurm --after`, which decides about a requeue
// (requeue_decision.hpp). The file never contains the token, only the path of its file.
//
// Two languages need different quotes. A line "#SBATCH --output=..." is parsed by sbatch: quotes group words, a backslash
// escapes the next character even within quotes, and % starts a pattern in a file name. The commands are parsed by bash.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

namespace ddprun {

struct SlurmRequest {
  std::string job_name;
  int min_nodes = 1;
  int max_nodes = 1;
  int spares = 0;  // nodes in addition to max_nodes, which wait until another node is lost
  // Values of sbatch's options. If a value is empty, the batch file has no line for the option.
  std::string time, partition, account, qos, gpus, array;
  int cpus_per_task = 0;            // 0: not given
  std::vector<std::string> sbatch;  // further options of sbatch, without their dashes, such as "mem=64G"
  std::chrono::seconds signal_before{120};
  std::string shutdown_timeout = "90";  // the value of ddprun's --shutdown-timeout, in seconds
  int max_failures = 3;
  int max_timeouts = 3;
  std::filesystem::path ddprun;      // absolute path of the program
  std::filesystem::path folder;      // the working directory of the job
  std::filesystem::path run_dir;     // absolute
  std::filesystem::path token_file;  // absolute; empty if the job needs no token
  std::vector<std::string> options;  // further options of ddprun, as "--name" or "--name=value"
  std::vector<std::string> program;  // the config or program, and its arguments
};

// Paths in the run directory. The files for Slurm are in a separate folder, slurm/, apart from the other files of a run.
std::filesystem::path slurm_folder(const std::filesystem::path& run_dir);
std::filesystem::path slurm_batch_file(const std::filesystem::path& run_dir);
std::filesystem::path slurm_job_file(const std::filesystem::path& run_dir);  // contains the id of the newest job

// Returns the folder of one task of a job array: RUN_DIR/task-3.
std::filesystem::path array_run_dir(const std::filesystem::path& run_dir, const std::string& task);

// Returns the text of the batch file. Throws UsageError if a value of an #SBATCH line contains a character that sbatch cannot
// read: a control character, or a backslash in the run directory.
std::string slurm_batch_text(const SlurmRequest& request);

// Quotes a word for bash. With `array`, each %a in it becomes the variable with the index of the array task.
std::string bash_word(const std::string& word, bool array);

// Replaces each %a by the index of an array task.
std::string with_array_index(std::string word, const std::string& index);

// Quotes the value of an #SBATCH line. Throws UsageError for a control character. `what` names the value in the message.
std::string sbatch_value(const std::string& value, const char* what);

}  // namespace ddprun
