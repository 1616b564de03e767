#include "trainer/life/subject.hpp"

#include "trainer/data/images.hpp"
#include "trainer/exported/exported_task.hpp"
#include "trainer/exported/tensor_source.hpp"
#include "trainer/image_files/image_check.hpp"
#include "trainer/image_files/image_folder.hpp"
#include "trainer/synthetic/synthetic_source.hpp"
#include "trainer/tables/array_file.hpp"
#include "trainer/tables/csv_file.hpp"
#include "trainer/tables/table_file.hpp"
#include "trainer/task/classification.hpp"
#include "trainer/task/language_model.hpp"
#include "trainer/task/regression.hpp"
#include "trainer/tokens/token_file.hpp"

namespace ddprun::trainer {

namespace {

struct SampleReader {
  Description (*describe)(const TrainConfig&);
  Sources (*read)(const TrainConfig&, c10::Device, const InflatedFiles&);
};

SampleReader reader_of(DataConfig::Type type) {
  using Config = const TrainConfig&;
  using Device = c10::Device;
  using Shared = const InflatedFiles&;
  switch (type) {
    case DataConfig::Type::kTensors:
      return {describe_tensors, [](Config config, Device, Shared) { return read_tensor_sources(config); }};
    case DataConfig::Type::kTokens:
      return {[](Config config) { return describe_tokens(config.data); },
              [](Config config, Device, Shared) { return read_tokens(config.data); }};
    case DataConfig::Type::kCsv:
      return {[](Config config) { return describe_csv(config.data); },
              [](Config config, Device, Shared) { return read_csv(config); }};
    case DataConfig::Type::kTable:
      return {describe_table, [](Config config, Device, Shared) { return read_table(config); }};
    case DataConfig::Type::kArrays:
      return {[](Config config) { return describe_arrays(config.data); },
              [](Config config, Device, Shared) { return read_arrays(config.data); }};
    case DataConfig::Type::kFolder:
      return {[](Config config) { return describe_image_folder(config.data); },
              [](Config config, Device, Shared) { return read_image_folders(config.data); }};
    case DataConfig::Type::kSynthetic:
      return {describe_synthetic, [](Config config, Device, Shared) { return make_synthetic(config); }};
    case DataConfig::Type::kIdx:
    case DataConfig::Type::kCifar10:
    case DataConfig::Type::kCifar100:
      break;
  }
  return {[](Config config) { return describe_images(config.data); },
          [](Config config, Device device, Shared shared) { return read_images(config.data, device, shared); }};
}

}  // namespace

Subject image_classification() {
  const SampleReader images = reader_of(DataConfig::Type::kIdx);
  return {.make_task = classification, .describe = images.describe, .read = images.read};
}

Subject chosen_by_config() {
  return {.make_task =
              [](const TrainConfig& config) {
                switch (config.model.type) {
                  case ModelConfig::Type::kExported:
                    return exported_task(config);
                  case ModelConfig::Type::kGpt:
                  case ModelConfig::Type::kLlama:
                    return language_model(config);
                  case ModelConfig::Type::kMlp:
                  case ModelConfig::Type::kCnn:
                  case ModelConfig::Type::kResnet18:
                  case ModelConfig::Type::kResnet34:
                  case ModelConfig::Type::kResnet50:
                  case ModelConfig::Type::kResnet20:
                  case ModelConfig::Type::kResnet56:
                  case ModelConfig::Type::kVit:
                  case ModelConfig::Type::kAuto:  // the parser of the config replaces this type
                    break;
                }
                return config.data.predicts_numbers() ? regression(config) : classification(config);
              },
          .describe = [](const TrainConfig& config) { return reader_of(config.data.type).describe(config); },
          .read = [](const TrainConfig& config, c10::Device device,
                     const InflatedFiles& shared) { return reader_of(config.data.type).read(config, device, shared); },
          .notes =
              [](const TrainConfig& config) {
                if (config.data.type == DataConfig::Type::kCsv) return notes_on_csv(config.data);
                if (config.data.type == DataConfig::Type::kFolder) return notes_on_image_folders(config.data);
                return std::vector<std::string>();
              },
          .check =
              [](const TrainConfig& config, const DataCheckPlace& place) {
                return config.data.type == DataConfig::Type::kFolder ? check_images(config.data, place)
                                                                     : std::unique_ptr<DataCheck>();
              },
          .built_in = true};
}

}  // namespace ddprun::trainer
