// The config file of a node that follows in a run directory. The leader's config.json may be on another disk, so this node
// writes its own file. start_training.cpp creates it before the workers start and keeps it until they have ended.
#pragma once

#include <filesystem>

#include "common/config/train_config.hpp"

namespace ddprun {

// A temporary folder with the config file. The destructor removes it.
class PrivateConfig {
 public:
  // Throws UsageError if no folder can be created, std::system_error if the file cannot be written.
  explicit PrivateConfig(const TrainConfig& config);
  ~PrivateConfig();
  PrivateConfig(const PrivateConfig&) = delete;
  PrivateConfig& operator=(const PrivateConfig&) = delete;

  std::filesystem::path file() const { return folder_ / "config.json"; }

 private:
  std::filesystem::path folder_;
};

}  // namespace ddprun
