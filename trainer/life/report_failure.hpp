// The last words of a worker: what the error that ends it was, on stderr and to the agent. After running out of memory it also
// keeps for the next process what would fit. Worker calls it once, on the way out.
#pragma once

#include <exception>
#include <filesystem>

#include "trainer/life/process.hpp"

namespace ddprun::trainer {

// `process` may not have got further than where its begin() failed; `run_dir` may be empty. Returns the exit code.
int report_failure(const std::exception_ptr& error, Process& process, const std::filesystem::path& run_dir);

}  // namespace ddprun::trainer
