// The networks behind make_model, one constructor each. Only model.cpp calls them; they initialise from the default generator.
// What is large is made on `device`; the small rest (batch norm, biases of convolutions) may be on the CPU still.
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
