// Implementation of model.hpp. make_model() selects the network, checks that the images are large enough, and initializes the
// network from a seed. The training program calls it once at the start.
#include "trainer/models/model.hpp"

#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include "common/base/error.hpp"
#include "trainer/models/architectures.hpp"
#include "trainer/models/low_rank.hpp"
#include "trainer/models/seeded_generator.hpp"

namespace ddprun::trainer {
namespace {

void require_size(const char* model, ImageShape shape, std::int64_t min_side, const char* why) {
  if (shape.channels < 1 || shape.height < min_side || shape.width < min_side) {
    throw UsageError(c10::str("model.type \"", model, "\" needs images of at least ", min_side, " x ", min_side, " pixels (",
                              why, "); the images of the data set have ", shape.height, " x ", shape.width,
                              ". Choose another model.type."));
  }
}

std::shared_ptr<Model> made(const ModelConfig& config, ImageShape shape, std::int64_t classes, c10::Device device) {
  switch (config.type) {
    case ModelConfig::Type::kMlp:
      require_size("mlp", shape, 1, "it accepts any size");
      return make_mlp(config, shape, classes, device);
    case ModelConfig::Type::kCnn:
      require_size("cnn", shape, 4, "it halves height and width twice");
      return make_cnn(config, shape, classes, device);
    case ModelConfig::Type::kResnet18:
    case ModelConfig::Type::kResnet34:
    case ModelConfig::Type::kResnet50:
      require_size("resnet18\", \"resnet34\" or \"resnet50", shape, 8, "it halves height and width three times");
      return make_resnet(config.type, shape, classes, device);
    case ModelConfig::Type::kResnet20:
    case ModelConfig::Type::kResnet56:
      require_size("resnet20\" or \"resnet56", shape, 4, "it halves height and width twice");
      return make_resnet(config.type, shape, classes, device);
    case ModelConfig::Type::kVit:
      require_size("vit", shape, 1, "it accepts any multiple of model.patch_size");
      return make_vit(config, shape, classes, device);
    // make_language_model() in gpt.hpp makes gpt and llama.
    case ModelConfig::Type::kGpt:
    case ModelConfig::Type::kLlama:
    case ModelConfig::Type::kExported:  // trainer/exported makes these models
    case ModelConfig::Type::kAuto:      // the parser of the config replaces this type
      break;
  }
  throw InternalError("make_model: unknown model type");
}

}  // namespace

ImageShape image_shape(const ModelConfig& config, const std::vector<std::int64_t>& sizes) {
  if (sizes.size() == 3) return {.channels = sizes[0], .height = sizes[1], .width = sizes[2]};
  if (config.type == ModelConfig::Type::kMlp) return {.channels = 1, .height = 1, .width = c10::multiply_integers(sizes)};
  throw UsageError(c10::str("a sample of the data has ", sizes.size(),
                            " dimensions; this model.type expects images with 3 dimensions: channels, height and width. Use "
                            "model.type \"mlp\", which accepts any number of dimensions."));
}

std::int64_t smallest_batch_of(const ModelConfig& config, ImageShape shape) {
  using Kind = ModelConfig::Type;
  int halvings = 0;
  if (config.type == Kind::kResnet18 || config.type == Kind::kResnet34 || config.type == Kind::kResnet50) halvings = 3;
  if (config.type == Kind::kResnet20 || config.type == Kind::kResnet56) halvings = 2;
  if (halvings == 0) return 1;
  std::int64_t height = shape.height, width = shape.width;
  for (int i = 0; i < halvings; ++i) height = (height + 1) / 2, width = (width + 1) / 2;
  return height * width == 1 ? 2 : 1;
}

std::shared_ptr<Model> make_model(const ModelConfig& config, ImageShape shape, std::int64_t classes, std::uint64_t seed,
                                  c10::Device device) {
  const SeededGenerator seeded(c10::kCPU, seed);
  std::shared_ptr<Model> model = made(config, shape, classes, device);
  add_low_rank(*model, config.lora);
  if (!device.is_cpu()) model->to(device);
  return model;
}

}  // namespace ddprun::trainer
