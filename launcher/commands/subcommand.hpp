// The subcommands: help, version, validate, init, report, doctor, gpus, token, link-torchrun; for running jobs ps, status, top,
// stop, logs, stacks, attach. main() calls run_subcommand(). A name is a subcommand only as the first argument (decision 29).
// Each subcommand prints to stdout and returns an exit code; it throws UsageError for wrong arguments.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace ddprun {

// Runs args[0] if it is a subcommand; returns nullopt otherwise.
std::optional<int> run_subcommand(std::span<const std::string> args);

int show_help(std::span<const std::string> args);  // [SUBCOMMAND]
int show_version(std::span<const std::string> args);
int validate_config(std::span<const std::string> args);   // TRAIN.json [key.path=value ...]: prints the resolved config
int init_project(std::span<const std::string> args);      // cpp FOLDER
int show_report(std::span<const std::string> args);       // [FOLDER] [--json | --html FILE] [--open]
int plot_runs(std::span<const std::string> args);         // RUN... [--figure NAME] [--output FILE]
int examine_machine(std::span<const std::string> args);   // doctor: what a job would find on this machine
int show_gpus(std::span<const std::string> args);         // gpus [--json]: current use of the GPUs
int list_jobs(std::span<const std::string> args);         // ps [--json]
int show_status(std::span<const std::string> args);       // [JOB] [--json]
int watch_job(std::span<const std::string> args);         // top [JOB]
int stop_job(std::span<const std::string> args);          // [JOB] [--now]
int show_logs(std::span<const std::string> args);         // [JOB] [-f] [--rank N] [--tail N] [--stderr] [--here]
int show_stacks(std::span<const std::string> args);       // [JOB] [--rank N]
int attach_to_worker(std::span<const std::string> args);  // [JOB] --rank N [--gdb|--py-spy]
int show_token(std::span<const std::string> args);        // [--run-dir|--token-file|--new PATH] [--show]
int link_torchrun(std::span<const std::string> args);     // [FOLDER] [--force|--remove]

}  // namespace ddprun
