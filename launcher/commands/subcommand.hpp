// The subcommands: help, version, validate, report, doctor, token. main() calls run_subcommand(): they count only as the first
// argument (decision 29). Each prints to stdout and returns an exit code, and throws UsageError for wrong arguments.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace ddprun {

// Runs args[0] when it is a subcommand; nothing when it is not.
std::optional<int> run_subcommand(std::span<const std::string> args);

int show_help(std::span<const std::string> args);  // [SUBCOMMAND]
int show_version(std::span<const std::string> args);
int validate_config(std::span<const std::string> args);  // TRAIN.json [key.path=value ...]: prints the resolved config
int show_report(std::span<const std::string> args);      // RUN_DIR [--json]
int examine_machine(std::span<const std::string> args);  // doctor: what a job on this machine will find
int show_token(std::span<const std::string> args);       // [--run-dir|--token-file|--new PATH] [--show]

}  // namespace ddprun
