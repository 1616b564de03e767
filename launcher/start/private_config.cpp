// Implementation of private_config.hpp.
#include "launcher/start/private_config.hpp"

#include "common/config/parse_config.hpp"
#include "common/system/atomic_file.hpp"
#include "common/system/unique_folder.hpp"

namespace ddprun {

namespace fs = std::filesystem;

PrivateConfig::PrivateConfig(const TrainConfig& config) : folder_(make_temporary_folder("ddprun-config-")) {
  write_file_atomically(file(), to_json_text(config));
}

PrivateConfig::~PrivateConfig() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace ddprun
