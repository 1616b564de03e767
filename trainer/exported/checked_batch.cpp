#include "trainer/exported/checked_batch.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/exported/exported_module.hpp"
#include "trainer/models/seeded_generator.hpp"

namespace ddprun::trainer {
namespace {

constexpr const char* kCheckFile = "check.safetensors";
// The relative tolerances for results that need not be bit-identical. Sums in a different order differ by 1e-6. In deep
// networks an activation near 0 may change its sign, which changed resnet18's gradients by up to 5e-3
// (docs/internals/exported-models.md).
constexpr double kLossTolerance = 1e-4;
constexpr double kGradientTolerance = 2e-2;

std::string cpu_model_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t begin = line.find_first_not_of(" \t:", std::strlen("model name"));
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

bool same_bits_expected(const ModelFolder& folder, c10::Device device) {
  return device.is_cpu() && folder.torch == TORCH_VERSION && folder.check.threads == at::get_num_threads() &&
         folder.check.cpu_capability == at::get_cpu_capability() && folder.check.cpu == cpu_model_name();
}

// Compares the results of this process with the results of the exporter, tensor by tensor.
class Comparison {
 public:
  Comparison(const ModelFolder& folder, bool same_bits)
      : folder_(folder),
        file_(folder.path / kCheckFile),
        written_(read_tensors_of(folder.path, kCheckFile)),
        same_bits_(same_bits) {}

  Batch batch(c10::Device device) const {
    Batch batch;
    for (const ExportedTensor& tensor : folder_.batch) {
      const auto found = written_.find("batch." + tensor.name);
      std::vector<std::int64_t> sizes = tensor.sizes;
      sizes.insert(sizes.begin(), found == written_.end() || found->second.dim() == 0 ? 0 : found->second.size(0));
      batch.tensors.push_back(tensor_like(written_, file_, "batch." + tensor.name, tensor.type, sizes).to(device));
    }
    batch.weight = static_cast<double>(batch.tensors.front().size(0));
    return batch;
  }

  bool same_bits() const { return same_bits_; }
  bool has(const std::string& name) const { return written_.contains(name); }

  // Throws UsageError if `found` differs from the exporter's value.
  void scalar(const std::string& name, const std::string& called, const at::Tensor& found) {
    const at::Tensor expected = expected_like(name, found);
    if (same_bits_) {
      if (!equal_bits(found, expected))
        differs(called + " is " + number(found) + "; the exporter computed " + number(expected));
      return;
    }
    const double a = found.item().toDouble();
    const double b = expected.item().toDouble();
    if (std::abs(a - b) <= kLossTolerance * std::max(std::abs(b), 1e-3)) return;
    differs(called + " is " + number(found) + "; the exporter computed " + number(expected));
  }

  void tensor(const std::string& name, const std::string& called, const at::Tensor& found) {
    const at::Tensor expected = expected_like(name, found);
    if (same_bits_) {
      if (!equal_bits(found, expected)) differs(called + " is not bit-identical to the value that the exporter computed");
      return;
    }
    const at::Tensor a = found.detach().cpu().to(at::kDouble);
    const at::Tensor b = expected.to(at::kDouble);
    squared_difference_ += a.sub(b).square().sum().item<double>();
    squared_norm_ += b.square().sum().item<double>();
  }

  // Throws UsageError if the gradients of all parameters together differ from the exporter's gradients by more than the
  // tolerance.
  void finish() {
    if (same_bits_ || std::sqrt(squared_difference_) <= kGradientTolerance * std::sqrt(squared_norm_)) return;
    differs("the gradients have a relative difference of " + std::to_string(std::sqrt(squared_difference_ / squared_norm_)) +
            " in the 2-norm");
  }

  [[noreturn]] void differs(const std::string& what) const {
    throw UsageError(file_.string() + ": the model's results for the batch in this file differ from those at export: " + what +
                     (same_bits_ ? " (with the same PyTorch " TORCH_VERSION " and the same kind of CPU)"
                                 : " (with PyTorch " + folder_.torch + "; this is LibTorch " TORCH_VERSION ")") +
                     ". The folder may contain a file from another export. Export the model again");
  }

 private:
  at::Tensor expected_like(const std::string& name, const at::Tensor& found) const {
    return tensor_like(written_, file_, name, found.scalar_type(), found.sizes());
  }

  static bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
    const at::Tensor left = a.detach().contiguous();
    const at::Tensor right = b.contiguous();
    return left.nbytes() == right.nbytes() && std::memcmp(left.const_data_ptr(), right.const_data_ptr(), left.nbytes()) == 0;
  }

  static std::string number(const at::Tensor& tensor) {
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%.9g", tensor.item().toDouble());
    return text.data();
  }

  const ModelFolder& folder_;
  std::filesystem::path file_;
  std::map<std::string, at::Tensor> written_;
  bool same_bits_;
  double squared_difference_ = 0;
  double squared_norm_ = 0;
};

void compare_training(const ModelFolder& folder, const ExportedModule& copy, const Batch& batch, Comparison& comparison) {
  const at::Tensor loss = copy.loss(batch);
  if (loss.dim() != 0 || loss.scalar_type() != at::kFloat) comparison.differs("the training loss is not a float32 scalar");
  comparison.scalar("train.loss", "the training loss", loss);
  if (!loss.requires_grad()) comparison.differs("the training loss has no gradient");
  loss.backward();
  const auto parameters = copy.named_parameters();
  for (const ExportedTensor& parameter : folder.parameters) {
    if (!parameter.tied.empty()) continue;
    const std::string name = "gradient." + parameter.name;
    const at::Tensor gradient = parameters[parameter.name].grad();
    if (gradient.defined() != comparison.has(name)) {
      comparison.differs("the parameter '" + parameter.name + "' has " +
                         (gradient.defined() ? "a gradient, but had none at export" : "no gradient, but had one at export"));
    }
    if (gradient.defined()) comparison.tensor(name, "the gradient of '" + parameter.name + "'", gradient);
  }
  comparison.finish();
  if (!comparison.same_bits()) return;
  const auto buffers = copy.named_buffers();
  for (const ExportedTensor& buffer : folder.buffers) {
    comparison.tensor("buffer." + buffer.name, "the buffer '" + buffer.name + "'", buffers[buffer.name]);
  }
}

void compare_evaluation(const ModelFolder& folder, const ExportedModule& copy, const Batch& batch, Comparison& comparison) {
  const at::NoGradGuard no_gradients;
  const std::vector<at::Tensor> results = copy.evaluate(batch);
  // If the results need not be bit-identical, only the loss is compared: a metric such as accuracy can jump if a number is
  // rounded differently.
  const std::size_t compared = comparison.same_bits() ? results.size() : 1;
  for (std::size_t i = 0; i < compared; ++i) {
    if (results[i].dim() != 0) comparison.differs("the metric '" + folder.outputs[i] + "' is not a scalar");
    comparison.scalar("eval." + folder.outputs[i], "the " + folder.outputs[i] + " of the evaluation", results[i]);
  }
}

}  // namespace

void check_exported_model(const std::shared_ptr<const ModelFolder>& folder, c10::Device device) {
  Comparison comparison(*folder, same_bits_expected(*folder, device));
  const Batch batch = comparison.batch(device);
  // If the results depend on random numbers, they can be compared only on the exporter's kind of CPU. Other devices generate
  // different numbers.
  if (folder->check.draws && !comparison.same_bits()) return;
  {
    const ExportedModule copy(folder, device);
    const SeededGenerator seeded(device, folder->check.seed);
    compare_training(*folder, copy, batch, comparison);
  }
  const ExportedModule copy(folder, device);
  const SeededGenerator seeded(device, folder->check.seed);
  compare_evaluation(*folder, copy, batch, comparison);
}

}  // namespace ddprun::trainer
