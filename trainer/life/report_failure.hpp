// Reports the error that ends a worker, on stderr and to the agent. After an out-of-memory error it also writes the smaller
// batch size for the next process. Worker calls it once, before it exits.
#pragma once

#include <exception>
#include <filesystem>

#include "trainer/life/process.hpp"

namespace ddprun::trainer {

// Returns the exit code for the process. If Process::begin() failed, `process` is incomplete. `run_dir` may be empty.
int report_failure(const std::exception_ptr& error, Process& process, const std::filesystem::path& run_dir);

}  // namespace ddprun::trainer
