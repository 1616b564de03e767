// Implementation of gpu_peak.hpp. The speeds are from NVIDIA's data sheets and architecture papers. They apply to products
// without sparsity, with float32 accumulation.
#include "trainer/cost/gpu_peak.hpp"

#include <array>
#include <cctype>

namespace ddprun::trainer {
namespace {

struct Peak {
  std::string_view in_name;
  double fp32, tf32, half;  // speeds in TFLOP/s
};

// The first entry whose name is part of the device's name applies. So longer names come before shorter ones.
constexpr std::array kPeaks{
    Peak{"GB200", 80, 1250, 2500},      Peak{"B200", 75, 1125, 2250}, Peak{"GH200", 67, 494.5, 989},
    Peak{"H200 NVL", 60, 417.5, 835.5}, Peak{"H200", 67, 494.5, 989}, Peak{"H100 PCIe", 51, 378, 756},
    Peak{"H100 NVL", 60, 417.5, 835.5}, Peak{"H100", 67, 494.5, 989}, Peak{"H800", 67, 494.5, 989},
    Peak{"A100", 19.5, 156, 312},       Peak{"A800", 19.5, 156, 312}, Peak{"L40S", 91.6, 183, 362},
    Peak{"L40", 90.5, 90.5, 181},       Peak{"L4", 30.3, 60, 121},    Peak{"A40", 37.4, 74.8, 149.7},
    Peak{"A30", 10.3, 82, 165},         Peak{"A10G", 31.5, 35, 70},   Peak{"A10", 31.2, 62.5, 125},
    Peak{"V100", 15.7, 15.7, 125},      Peak{"T4", 8.1, 8.1, 65},     Peak{"RTX 4090", 82.6, 82.6, 165.2},
    Peak{"RTX 3090", 35.6, 35.6, 71},
};

// The match must end at the end of a word: "RTX A1000" does not match "A100".
bool names(std::string_view device, std::string_view card) {
  const std::size_t begin = device.find(card);
  if (begin == std::string_view::npos) return false;
  const std::size_t end = begin + card.size();
  return end == device.size() || std::isalnum(static_cast<unsigned char>(device[end])) == 0;
}

}  // namespace

std::optional<double> gpu_peak(std::string_view name, TrainConfig::Precision precision) {
  // The table's speeds do not apply to a MIG slice, which is only a part of a card. They do not apply to a laptop GPU either,
  // which is slower than the desktop card of the same name.
  for (const std::string_view less : {"MIG", "Laptop"}) {
    if (name.find(less) != std::string_view::npos) return std::nullopt;
  }
  for (const Peak& peak : kPeaks) {
    if (!names(name, peak.in_name)) continue;
    switch (precision) {
      case TrainConfig::Precision::kFp32:
        return peak.fp32 * 1e12;
      case TrainConfig::Precision::kTf32:
        return peak.tf32 * 1e12;
      case TrainConfig::Precision::kBf16:
      case TrainConfig::Precision::kFp16:
        return peak.half * 1e12;
    }
  }
  return std::nullopt;
}

}  // namespace ddprun::trainer
