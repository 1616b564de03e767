// The networks of make_model(), one function each. Only model.cpp calls them. They initialise from the default generator. Large
// tensors are made on `device`. Small ones (batch norm, biases of convolutions) may still be on the CPU.
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
