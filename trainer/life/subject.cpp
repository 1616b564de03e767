// Implementation of subject.hpp.
#include "trainer/life/subject.hpp"

#include "trainer/data/pictures.hpp"
#include "trainer/exported/exported_task.hpp"
#include "trainer/exported/tensor_source.hpp"
#include "trainer/task/classification.hpp"

namespace ddprun::trainer {

Subject pictures_into_classes() {
  return {.make_task = classification,
          .describe = [](const TrainConfig& config) { return describe_pictures(config.data); },
          .read = [](const TrainConfig& config, c10::Device device,
                     const InflatedFiles& shared) { return read_pictures(config.data, device, shared); }};
}

Subject chosen_by_config() {
  const auto from_tensors = [](const TrainConfig& config) { return config.data.type == DataConfig::Type::kTensors; };
  return {.make_task =
              [](const TrainConfig& config) {
                return config.model.type == ModelConfig::Type::kExported ? exported_task(config) : classification(config);
              },
          .describe =
              [from_tensors](const TrainConfig& config) {
                return from_tensors(config) ? describe_tensors(config) : describe_pictures(config.data);
              },
          .read =
              [from_tensors](const TrainConfig& config, c10::Device device, const InflatedFiles& shared) {
                return from_tensors(config) ? read_tensor_sources(config) : read_pictures(config.data, device, shared);
              }};
}

}  // namespace ddprun::trainer
