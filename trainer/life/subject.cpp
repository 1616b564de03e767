// Implementation of subject.hpp.
#include "trainer/life/subject.hpp"

#include "trainer/data/pictures.hpp"
#include "trainer/task/classification.hpp"

namespace ddprun::trainer {

Subject pictures_into_classes() {
  return {.make_task = classification,
          .describe = [](const TrainConfig& config) { return describe_pictures(config.data); },
          .read = [](const TrainConfig& config, c10::Device device,
                     const InflatedFiles& shared) { return read_pictures(config.data, device, shared); }};
}

}  // namespace ddprun::trainer
