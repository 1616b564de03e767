// Implementation of image_predictor() in predictor.hpp. Images are processed as in an evaluation: they are normalized, but not
// augmented.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "common/base/error.hpp"
#include "trainer/data/images.hpp"
#include "trainer/data/upload.hpp"
#include "trainer/models/model.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/saved/predictor.hpp"
#include "trainer/task/classification.hpp"

namespace ddprun::trainer {
namespace {

using Json = nlohmann::json;

Normalization normalization_for(const DataConfig& config) {
  if (config.mean && config.std) return {.mean = *config.mean, .std = *config.std};
  return normalization_of(config, load_images(config, Split::kTrain));
}

bool is_pixel(const Json& value) {
  return value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= 255;
}

class ImagePredictor : public Predictor {
 public:
  explicit ImagePredictor(const SavedModel& saved)
      : config_(saved.config),
        samples_(describe_images(config_.data)),
        sizes_(samples_.tensors.at(0).sizes),
        model_(load_model(saved, *classification(config_), samples_)),
        normalization_(normalization_for(config_.data)) {}

  void take(const Json& sample) override {
    const std::int64_t count = sizes_.at(0) * sizes_.at(1) * sizes_.at(2);
    const auto pixels = sample.find("pixels");
    const bool fits = pixels != sample.end() && pixels->is_array() && std::cmp_equal(pixels->size(), count) &&
                      std::all_of(pixels->begin(), pixels->end(), is_pixel);
    if (!fits) {
      throw UsageError("expected \"pixels\" with " + std::to_string(count) + " integers from 0 to 255 (" +
                       std::to_string(sizes_.at(0)) + " x " + std::to_string(sizes_.at(1)) + " x " +
                       std::to_string(sizes_.at(2)) + ")");
    }
    at::Tensor image = at::empty(sizes_, at::kByte);
    std::uint8_t* to = image.mutable_data_ptr<std::uint8_t>();
    for (const Json& pixel : *pixels) *to++ = pixel.get<std::uint8_t>();
    taken_.push_back(std::move(image));
  }

  std::vector<nlohmann::ordered_json> answers() override {
    if (taken_.empty()) return {};
    const at::NoGradGuard no_gradients;
    const auto count = static_cast<std::int64_t>(taken_.size());
    Dataset images{.images = at::stack(std::exchange(taken_, {})), .labels = at::zeros({count}, at::kLong)};
    const auto source = image_source(std::move(images), normalization_, {}, image_form_for(model_.device));
    std::vector<std::int64_t> all(static_cast<std::size_t>(count));
    std::iota(all.begin(), all.end(), 0);
    const Batch batch = Upload(*source, model_.device).take(source->make(all, {}));
    auto* const model = dynamic_cast<Model*>(model_.module.get());
    if (model == nullptr)
      throw InternalError("expected classification() to create an image model, found another type of module");
    const Autocast precision(config_.precision, model_.device.type());
    const at::Tensor probabilities = at::softmax(forward(*model, batch.tensors.at(0), config_.channels_last), 1).cpu();
    require_numbers(probabilities);
    std::vector<nlohmann::ordered_json> answers;
    const std::int64_t classes = probabilities.size(1);
    const float* row = probabilities.const_data_ptr<float>();
    for (std::int64_t i = 0; i < count; ++i, row += classes) {
      const float* best = std::max_element(row, row + classes);
      answers.push_back(
          {{"class", best - row}, {"probability", *best}, {"probabilities", std::vector<float>(row, row + classes)}});
    }
    return answers;
  }

 private:
  TrainConfig config_;
  Description samples_;
  std::vector<std::int64_t> sizes_;  // size of an image: channels, height, width
  LoadedModel model_;
  Normalization normalization_;
  std::vector<at::Tensor> taken_;
};

}  // namespace

std::unique_ptr<Predictor> image_predictor(const SavedModel& saved) {
  return std::make_unique<ImagePredictor>(saved);
}

}  // namespace ddprun::trainer
