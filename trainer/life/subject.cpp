// Implementation of subject.hpp.
#include "trainer/life/subject.hpp"

#include "trainer/data/pictures.hpp"
#include "trainer/exported/exported_task.hpp"
#include "trainer/exported/tensor_source.hpp"
#include "trainer/picture_files/picture_check.hpp"
#include "trainer/picture_files/picture_folder.hpp"
#include "trainer/synthetic/synthetic_source.hpp"
#include "trainer/tables/csv_file.hpp"
#include "trainer/tables/read_tables.hpp"
#include "trainer/task/classification.hpp"
#include "trainer/task/language_model.hpp"
#include "trainer/task/regression.hpp"
#include "trainer/tokens/token_file.hpp"

namespace ddprun::trainer {

Subject pictures_into_classes() {
  return {.make_task = classification,
          .describe = [](const TrainConfig& config) { return describe_pictures(config.data); },
          .read = [](const TrainConfig& config, c10::Device device,
                     const InflatedFiles& shared) { return read_pictures(config.data, device, shared); }};
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
                    break;
                }
                return config.data.predicts_numbers() ? regression(config) : classification(config);
              },
          .describe =
              [](const TrainConfig& config) {
                switch (config.data.type) {
                  case DataConfig::Type::kTensors:
                    return describe_tensors(config);
                  case DataConfig::Type::kTokens:
                    return describe_tokens(config.data);
                  case DataConfig::Type::kCsv:
                  case DataConfig::Type::kArrays:
                    return describe_table(config.data);
                  case DataConfig::Type::kFolder:
                    return describe_picture_folder(config.data);
                  case DataConfig::Type::kSynthetic:
                    return describe_synthetic(config);
                  case DataConfig::Type::kIdx:
                  case DataConfig::Type::kCifar10:
                  case DataConfig::Type::kCifar100:
                    break;
                }
                return describe_pictures(config.data);
              },
          .read =
              [](const TrainConfig& config, c10::Device device, const InflatedFiles& shared) {
                switch (config.data.type) {
                  case DataConfig::Type::kTensors:
                    return read_tensor_sources(config);
                  case DataConfig::Type::kTokens:
                    return read_tokens(config.data);
                  case DataConfig::Type::kCsv:
                  case DataConfig::Type::kArrays:
                    return read_tables(config);
                  case DataConfig::Type::kFolder:
                    return read_picture_folders(config.data);
                  case DataConfig::Type::kSynthetic:
                    return make_synthetic(config);
                  case DataConfig::Type::kIdx:
                  case DataConfig::Type::kCifar10:
                  case DataConfig::Type::kCifar100:
                    break;
                }
                return read_pictures(config.data, device, shared);
              },
          .notes =
              [](const TrainConfig& config) {
                if (config.data.type == DataConfig::Type::kCsv) return notes_on_csv(config.data);
                if (config.data.type == DataConfig::Type::kFolder) return notes_on_picture_folders(config.data);
                return std::vector<std::string>();
              },
          .check =
              [](const TrainConfig& config, const DataCheckPlace& place) {
                return config.data.type == DataConfig::Type::kFolder ? check_pictures(config.data, place)
                                                                     : std::unique_ptr<DataCheck>();
              },
          .built_in = true};
}

}  // namespace ddprun::trainer
