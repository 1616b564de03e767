// Implementation of private_config.hpp: a folder by mkdtemp, so that only this user can read it.
#include "launcher/start/private_config.hpp"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun {

namespace fs = std::filesystem;

PrivateConfig::PrivateConfig(const TrainConfig& config) {
  std::string name = (fs::temp_directory_path() / "ddprun-config-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) {
    throw UsageError("cannot make a folder in " + fs::temp_directory_path().string() + ": " + std::strerror(errno) +
                     "; TMPDIR names another place");
  }
  folder_ = name;
  write_file_atomically(file(), to_json_text(config));
}

PrivateConfig::~PrivateConfig() {
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

}  // namespace ddprun
