// A small exported model, written by hand in the format of the exporter. It computes out = scale * (x w^T + x v^T). w and v
// are the same tensor, scale is frozen, and the buffer `seen` counts the training batches. The loss is the mean of
// the squares of (out - y).
#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer::test {

struct SampleModel {
  nlohmann::json model_json;
  std::string train_graph;
  std::string eval_graph;
  std::vector<NamedTensor> init;
  std::vector<NamedTensor> check;
};

SampleModel sample_model();
void write_sample_model(const std::filesystem::path& folder, const SampleModel& model);

}  // namespace ddprun::trainer::test
