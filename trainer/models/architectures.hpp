// One function for each network that make_model() can make. Only model.cpp calls these functions. They draw the initial weights
// from the default CPU generator. Large tensors are allocated on `device`. Some small tensors (batch norms, convolutions of the
// cnn) are first on the CPU, and make_model() moves them to `device`.
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/models/model.hpp"

namespace ddprun::trainer {

std::shared_ptr<Model> make_mlp(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device);
std::shared_ptr<Model> make_cnn(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device);
std::shared_ptr<Model> make_resnet(ModelConfig::Type type, ImageShape shape, std::int64_t classes, c10::Device device);
std::shared_ptr<Model> make_vit(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device);

}  // namespace ddprun::trainer
