#include "trainer/life/version.hpp"

#include <torch/version.h>

#include "common/channel/message.hpp"

namespace ddprun::trainer {

// `ddprun --version` searches the executable file of this program for this text (launcher/commands/version_text.cpp). So the
// text must be one contiguous string.
[[gnu::used]] static const char kBuiltWith[] = DDPRUN_LIBTORCH_MARK TORCH_VERSION;

std::string version_with_torch() {
  return std::string(kVersion) + " (LibTorch " + TORCH_VERSION + ")";
}

WorkerDescription description_of(const Subject& subject, const std::filesystem::path& program) {
  return {.name = subject.name.empty() ? program.filename().string() : subject.name,
          .version = subject.version,
          .ddprun = kVersion,
          .libtorch = TORCH_VERSION,
          .channel_major = channel::kProtocolMajor,
          .channel_minor = channel::kProtocolMinor,
          .keys = TaskConfig(subject.keys).keys()};
}

}  // namespace ddprun::trainer
