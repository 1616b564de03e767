// A worker program for test_faulty_worker.py. Its model has one parameter. The program fails at the place that task.fault in
// train.json selects.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ddprun/worker.hpp>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>

namespace {

using namespace ddprun::trainer;

const Description kSamples{.tensors = {{.sizes = {2}}}};

class Ones : public Source {
 public:
  explicit Ones(std::string fault) : fault_(std::move(fault)) {}
  std::int64_t size() const override { return 64; }
  Description describe() const override { return kSamples; }
  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>& draws) const override {
    if (draws && fault_ == "refused") throw std::runtime_error("samples.example:80: Connection refused");
    if (draws && fault_ == "no memory for data") throw std::bad_alloc();
    const auto count = static_cast<std::int64_t>(samples.size());
    return {.tensors = {at::full({count, 2}, 1.0)}, .weight = static_cast<double>(count)};
  }
  std::string fingerprint() const override { return "64 ones"; }

 private:
  std::string fault_;
};

struct Number : torch::nn::Module {
  at::Tensor weight = register_parameter("weight", at::zeros({2}));
};

class Learns : public Task {
 public:
  explicit Learns(std::string fault) : fault_(std::move(fault)) {}
  std::shared_ptr<torch::nn::Module> make_module(const Description&, c10::Device) const override {
    if (fault_ == "make_module") throw std::runtime_error("weights.bin is not there");
    auto module = std::make_shared<Number>();
    static int calls = 0;
    if (fault_ == "other weights") module->weight.detach().fill_(++calls);
    return module;
  }
  at::Tensor loss(torch::nn::Module& module, const Batch& batch) const override {
    if (fault_ == "crash") crash();
    if (fault_ == "shape") return wrong_shape(batch).mean();
    return (batch.tensors[0] * dynamic_cast<Number&>(module).weight - 1).square().mean();
  }
  std::vector<std::string> figures() const override { return {"loss"}; }
  void measure(torch::nn::Module& module, const Batch& batch, Figures& figures) const override {
    figures.add("loss", loss(module, batch) * batch.weight, batch.weight);
  }

 private:
  [[gnu::noinline]] static void crash() {
    volatile int* volatile nowhere = nullptr;  // volatile, so that the compiler cannot remove the store
    *nowhere = 1;
  }
  [[gnu::noinline]] static at::Tensor wrong_shape(const Batch& batch) { return batch.tensors[0].view({-1, 7}); }

  std::string fault_;
};

Subject faulty() {
  const auto fault = [](const ddprun::TrainConfig& config) { return config.task.text("fault"); };
  return {.make_task = [=](const ddprun::TrainConfig& config) { return std::make_unique<Learns>(fault(config)); },
          .describe =
              [=](const ddprun::TrainConfig& config) {
                if (fault(config) == "describe") throw std::runtime_error("no header to describe");
                return kSamples;
              },
          .read =
              [=](const ddprun::TrainConfig& config, c10::Device, const InflatedFiles&) {
                return Sources{std::make_shared<Ones>(fault(config)), std::make_shared<Ones>("")};
              },
          .keys = {{.name = "fault", .value = "", .help = "Where it fails."}}};
}

}  // namespace

DDPRUN_WORKER(faulty())
