// The networks behind make_model, one constructor each. Only model.cpp calls them; they initialise from the default generator.
#pragma once

#include <cstdint>
#include <memory>

#include "trainer/models/model.hpp"

namespace ddprun::trainer {

std::shared_ptr<Model> make_mlp(const ModelConfig& config, ImageShape shape, std::int64_t classes);
std::shared_ptr<Model> make_cnn(const ModelConfig& config, ImageShape shape, std::int64_t classes);
std::shared_ptr<Model> make_resnet18(ImageShape shape, std::int64_t classes);

}  // namespace ddprun::trainer
