// Reads the facts about folders that a job writes, and reads samples of its data. Only a write proves that a folder can be
// written: permission bits do not show quotas, root squashing of NFS and read-only remounts. So observe_folder() creates two
// small files, renames one to the name of the other and removes it. It creates no folder: if the folder does not exist yet, it
// uses the nearest existing parent.
#pragma once

#include <filesystem>
#include <string>

#include "common/config/train_config.hpp"
#include "launcher/doctor/observe_programs.hpp"
#include "launcher/doctor/verdicts/judge_folders.hpp"

namespace ddprun::doctor {

FolderFacts observe_folder(const std::filesystem::path& path);

// Returns the folder for temporary files: $TMPDIR, or /tmp if the variable is not set.
std::string temporary_folder();

// If `custom_program` is true, a worker program of the user reads the data, and the doctor reads no sample.
DataFacts observe_data(const TrainConfig& config, bool custom_program, Depth depth);

}  // namespace ddprun::doctor
