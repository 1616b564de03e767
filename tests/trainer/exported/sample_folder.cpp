#include "tests/trainer/exported/sample_folder.hpp"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mse_loss.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/version.h>

#include <fstream>

#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer::test {
namespace {

std::string own_cpu() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "";
}

nlohmann::json tensor_json(const std::string& name, const std::string& dtype, const std::vector<int>& shape) {
  return {{"name", name}, {"dtype", dtype}, {"shape", shape}};
}

nlohmann::json parameter_json(const std::string& name, const std::vector<int>& shape, bool requires_grad) {
  nlohmann::json made = tensor_json(name, "float32", shape);
  made["requires_grad"] = requires_grad;
  return made;
}

constexpr const char* kForward =
    "ddprun graph 1\n%0 = parameter net.w\n%1 = parameter scale\n%2 = parameter net.v\n%3 = buffer net.seen\n%4 = batch x\n"
    "%5 = batch y\n%6 = op aten::linear %4 %0 none\n%7 = op aten::linear %4 %2 none\n%8 = op aten::add.Tensor %6 %7 default\n"
    "%9 = op aten::mul.Tensor %8 %1\n%10 = op aten::mse_loss %9 %5 default\n";

}  // namespace

SampleModel sample_model() {
  const at::Tensor weight = at::full({1, 2}, 0.5).set_requires_grad(true);
  const at::Tensor scale = at::full({}, 2.0);
  const at::Tensor x = at::arange(8, at::kFloat).view({4, 2});
  const at::Tensor y = at::arange(4, at::kFloat).view({4, 1});
  const at::Tensor loss = at::mse_loss((at::linear(x, weight) + at::linear(x, weight)).mul(scale), y);
  loss.backward();

  nlohmann::json tied = parameter_json("net.v", {1, 2}, true);
  tied["tied"] = "net.w";
  SampleModel model;
  model.model_json = {{"format", 1},
                      {"torch", TORCH_VERSION},
                      {"parameters", {parameter_json("scale", {}, false), parameter_json("net.w", {1, 2}, true), tied}},
                      {"buffers", {tensor_json("net.seen", "int64", {})}},
                      {"constants", nlohmann::json::array()},
                      {"batch", {tensor_json("x", "float32", {2}), tensor_json("y", "float32", {1})}},
                      {"outputs", {"loss", "largest"}},
                      {"reduction", "mean"},
                      {"operators", nlohmann::json::array()},
                      {"check",
                       {{"seed", 0},
                        {"draws", false},
                        {"threads", at::get_num_threads()},
                        {"cpu", own_cpu()},
                        {"cpu_capability", at::get_cpu_capability()}}}};
  model.train_graph = std::string(kForward) + "%11 = op aten::add_.Tensor %3 i1 default\nreturn %10\n";
  model.eval_graph = std::string(kForward) + "%11 = op aten::max %9\nreturn %10 %11\n";
  model.init = {
      {"parameter.net.w", weight.detach()}, {"parameter.scale", scale}, {"buffer.net.seen", at::zeros({}, at::kLong)}};
  model.check = {{"batch.x", x},
                 {"batch.y", y},
                 {"train.loss", loss.detach()},
                 {"gradient.net.w", weight.grad()},
                 {"buffer.net.seen", at::ones({}, at::kLong)},
                 {"eval.loss", loss.detach()},
                 {"eval.largest", at::full({}, 26.0)}};
  return model;
}

void write_sample_model(const std::filesystem::path& folder, const SampleModel& model) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model.json") << model.model_json.dump(1);
  std::ofstream(folder / "train.graph") << model.train_graph;
  std::ofstream(folder / "eval.graph") << model.eval_graph;
  std::ofstream(folder / "init.safetensors", std::ios::binary) << encode_safetensors(model.init);
  std::ofstream(folder / "check.safetensors", std::ios::binary) << encode_safetensors(model.check);
}

}  // namespace ddprun::trainer::test
