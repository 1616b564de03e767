// Reports the error that ends a worker, on stderr and to the agent. After an out-of-memory error it also writes the smaller
// batch size for the next process. Worker calls it once, before it exits.
#pragma once

#include <exception>
#include <filesystem>

#include "trainer/life/process.hpp"

namespace ddprun::trainer {

// `process` may be incomplete, if its begin() failed. `run_dir` may be empty. Returns the exit code for the process.
int report_failure(const std::exception_ptr& error, Process& process, const std::filesystem::path& run_dir);

}  // namespace ddprun::trainer
