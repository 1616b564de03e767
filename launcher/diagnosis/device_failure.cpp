#include "launcher/diagnosis/device_failure.hpp"

#include <array>

namespace ddprun {

std::optional<std::string_view> device_failure_in(std::string_view message) {
  constexpr std::array<std::string_view, 6> kPhrases{
      "uncorrectable ECC error",                          // cudaErrorECCUncorrectable
      "uncorrectable NVLink error",                       // cudaErrorNvlinkUncorrectable
      "peer GPU memory over nvlink or a hardware error",  // cudaErrorContained
      "hardware stack error",                             // cudaErrorHardwareStackError
      "GPU is lost",                                      // NVML_ERROR_GPU_IS_LOST
      "fallen off the bus",                               // the wording of the NVIDIA driver
  };
  for (const std::string_view words : kPhrases)
    if (message.find(words) != std::string_view::npos) return words;
  return std::nullopt;
}

}  // namespace ddprun
