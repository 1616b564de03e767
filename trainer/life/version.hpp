// The version of this program. It is reported to users (ddptrain --version), to the agent (the Hello message), and to ddprun
// before a job (--describe).
#pragma once

#include <filesystem>
#include <string>

#include "common/base/version.hpp"
#include "common/custom_worker/description.hpp"
#include "trainer/life/subject.hpp"

namespace ddprun::trainer {

// Returns the version as a text, such as "0.1.0 (LibTorch 2.11.0)".
std::string version_with_torch();

// Describes the program for --describe. `program` is argv[0]. Throws UsageError if the subject's table of keys is invalid.
WorkerDescription description_of(const Subject& subject, const std::filesystem::path& program);

}  // namespace ddprun::trainer
