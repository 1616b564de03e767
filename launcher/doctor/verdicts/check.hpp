// The results of `ddprun doctor`, as plain data, and their two forms: a table and JSON lines.
//
// A machine can have many small faults, and each of them ends a job in a different way. The doctor finds them before the job
// starts. Three layers keep this testable:
//
//   observe_*.cpp          read the machine and fill a struct of facts; they decide nothing
//   verdicts/judge_*.cpp   pure functions from facts and the needs of the job to checks
//   doctor.cpp             runs each subject in a child process with a time limit, and collects the checks
//
// A check has a verdict. An error means that the job would fail, or would lose its results. A warning means that the job may
// run, but a user should know the fact first. If only some jobs depend on a fact, the needs of the job (job_needs.hpp)
// determine its verdict: 64 MiB of /dev/shm are enough for ddptrain on CPUs, but not for a Python script.
//
// A false alarm costs more than a missing check, because users stop reading the table. A check is therefore only added if a
// user can lose work without it. A healthy container or laptop must pass it.
//
// The children send their checks to the doctor in the JSON form. The nodes of a job send the same lines to the first node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::doctor {

enum class CheckVerdict { kOk, kWarning, kError };

const char* name_of(CheckVerdict verdict);  // "ok", "warning", "error"

struct Check {
  std::string check;  // stable name for programs, such as "open-files"
  CheckVerdict verdict = CheckVerdict::kOk;
  std::string found;   // what was found, and what was expected if the verdict is not ok
  std::string remedy;  // what to do; empty if and only if the verdict is ok
  // The node's name in the output of a doctor of several nodes, kAllNodes for a comparison of nodes; otherwise empty.
  std::string node{};

  bool operator==(const Check&) const = default;
};

using Checks = std::vector<Check>;

inline constexpr const char* kAllNodes = "*";  // not a possible host name

Check ok(std::string check, std::string found);
Check warning(std::string check, std::string found, std::string remedy);
Check error(std::string check, std::string found, std::string remedy);

int count(const Checks& checks, CheckVerdict verdict);

// Exit code of `ddprun doctor`: 1 if a check is an error, otherwise 0.
int exit_code_of(const Checks& checks);

// Returns the table: one line per check, with the remedy below it, and a line with the totals. Control characters are escaped.
std::string table_of(const Checks& checks);

// Returns one line {"check", "verdict", "found", "do"} for each check. The line begins with "node" if it is not empty.
std::string json_lines_of(const Checks& checks);
// Parses the text that json_lines_of() returns. Returns nullopt if a line has a different form.
std::optional<Checks> checks_of_json_lines(std::string_view lines);

inline constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;

// Returns the amount as text, rounded down, such as "12 KiB", "3072 MiB" or "24 GiB". The unit is GiB only from 10 GiB on, so
// that the error stays below 10 %.
std::string text_of_bytes(unsigned long long bytes);

}  // namespace ddprun::doctor
