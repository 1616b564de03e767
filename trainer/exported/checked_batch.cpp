// Implementation of checked_batch.hpp.
#include "trainer/exported/checked_batch.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/Generator.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/exported/exported_module.hpp"

namespace ddprun::trainer {
namespace {

constexpr const char* kCheckFile = "check.safetensors";
// Tolerances if the bits need not be equal. Sums in another order differ by 1e-6. In deep networks an activation near 0 may
// change its sign, which changed resnet18's gradients by up to 5e-3 (docs/internals/exported-models.md).
constexpr double kLossTolerance = 1e-4;
constexpr double kGradientTolerance = 2e-2;

// Seeds the device's default generator while it exists, then restores its earlier state.
class SeededGenerator {
 public:
  SeededGenerator(c10::Device device, std::uint64_t seed) : generator_(at::globalContext().defaultGenerator(device)) {
    const std::lock_guard lock(generator_.mutex());
    before_ = generator_.get_state();
    generator_.set_current_seed(seed);
  }
  ~SeededGenerator() {
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(before_);
  }
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  at::Generator generator_;
  at::Tensor before_;
};

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

// Compares the results here with those of the exporter, tensor by tensor.
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

  // Throws UsageError if the number differs from the exporter's.
  void scalar(const std::string& name, const std::string& called, const at::Tensor& found) {
    const at::Tensor expected = expected_like(name, found);
    if (same_bits_) {
      if (!equal_bits(found, expected)) differs(called + " is " + number(found) + ", the exporter had " + number(expected));
      return;
    }
    const double a = found.item().toDouble();
    const double b = expected.item().toDouble();
    if (std::abs(a - b) <= kLossTolerance * std::max(std::abs(b), 1e-3)) return;
    differs(called + " is " + number(found) + ", the exporter had " + number(expected));
  }

  void tensor(const std::string& name, const std::string& called, const at::Tensor& found) {
    const at::Tensor expected = expected_like(name, found);
    if (same_bits_) {
      if (!equal_bits(found, expected)) differs(called + " has other bits than the exporter's");
      return;
    }
    const at::Tensor a = found.detach().cpu().to(at::kDouble);
    const at::Tensor b = expected.to(at::kDouble);
    squared_difference_ += a.sub(b).square().sum().item<double>();
    squared_norm_ += b.square().sum().item<double>();
  }

  // Compares all gradients together.
  void finish() {
    if (same_bits_ || std::sqrt(squared_difference_) <= kGradientTolerance * std::sqrt(squared_norm_)) return;
    differs("the gradients are " + std::to_string(std::sqrt(squared_difference_ / squared_norm_)) +
            " of their norm away from the exporter's");
  }

  [[noreturn]] void differs(const std::string& what) const {
    throw UsageError(file_.string() + ": the checked batch does not come out as the exporter had it: " + what +
                     (same_bits_ ? ", with the same PyTorch " TORCH_VERSION " on the same kind of CPU"
                                 : ". It was exported with PyTorch " + folder_.torch + ", this is LibTorch " TORCH_VERSION) +
                     ". Is a file of the folder from another export? Export the model again");
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
  if (loss.dim() != 0 || loss.scalar_type() != at::kFloat) comparison.differs("the training loss is no float32 scalar");
  comparison.scalar("train.loss", "the training loss", loss);
  if (!loss.requires_grad()) comparison.differs("the training loss has no gradient");
  loss.backward();
  const auto parameters = copy.named_parameters();
  for (const ExportedTensor& parameter : folder.parameters) {
    if (!parameter.tied.empty()) continue;
    const std::string name = "gradient." + parameter.name;
    const at::Tensor gradient = parameters[parameter.name].grad();
    if (gradient.defined() != comparison.has(name)) {
      comparison.differs("'" + parameter.name + "' has " + (gradient.defined() ? "a" : "no") + " gradient");
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
  // A metric such as an accuracy may jump if a number is rounded differently, so only the loss is compared then.
  const std::size_t compared = comparison.same_bits() ? results.size() : 1;
  for (std::size_t i = 0; i < compared; ++i) {
    if (results[i].dim() != 0) comparison.differs("the figure '" + folder.outputs[i] + "' is no scalar");
    comparison.scalar("eval." + folder.outputs[i], "the " + folder.outputs[i] + " of evaluation", results[i]);
  }
}

}  // namespace

void check_exported_model(const std::shared_ptr<const ModelFolder>& folder, c10::Device device) {
  Comparison comparison(*folder, same_bits_expected(*folder, device));
  const Batch batch = comparison.batch(device);
  // A GPU or another kind of CPU draws other random numbers than the exporter, so the results can't be compared.
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
