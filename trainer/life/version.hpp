// What this program says that it is: to people (ddptrain --version), to the agent (Hello), and before a job to ddprun
// (--describe).
#pragma once

#include <filesystem>
#include <string>

#include "common/base/version.hpp"
#include "common/own_worker/description.hpp"
#include "trainer/life/subject.hpp"

namespace ddprun::trainer {

// "0.1.0 (LibTorch 2.11.0)"
std::string version_with_torch();

// `program`: its argv[0]. Throws UsageError when the subject's table of keys is wrong.
WorkerDescription description_of(const Subject& subject, const std::filesystem::path& program);

}  // namespace ddprun::trainer
