// Tests the check of the files that a config names. The check must find files that do not exist or cannot be read.
#include "launcher/config_files/config_files.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using test::TemporaryFolder;
using test::write_text;
using Lines = std::vector<std::string>;

TrainConfig config_of(DataConfig::Type type, const std::filesystem::path& folder) {
  TrainConfig config;
  config.data.type = type;
  config.data.dir = folder.string();
  return config;
}

TEST(ConfigFiles, AMissingFolderIsOneLine) {
  const TemporaryFolder folder;
  const std::string absent = (folder / "fashion").string();
  EXPECT_EQ(missing_files(config_of(DataConfig::Type::kIdx, absent), false), Lines{"data.dir: " + absent + " does not exist"});
}

TEST(ConfigFiles, EachTypeOfDataHasItsFiles) {
  struct Row {
    DataConfig::Type type;
    Lines files;  // files that must exist
  };
  for (const Row& row : {
           Row{DataConfig::Type::kIdx,
               {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte.gz",
                "t10k-labels-idx1-ubyte"}},
           Row{DataConfig::Type::kCifar10,
               {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin",
                "test_batch.bin"}},
           Row{DataConfig::Type::kCifar100, {"train.bin", "test.bin"}},
           Row{DataConfig::Type::kTensors, {"train.safetensors", "test.safetensors"}},
           Row{DataConfig::Type::kTokens, {"train.bin", "val.bin"}},
           Row{DataConfig::Type::kCsv, {"train.csv", "test.csv"}},
           Row{DataConfig::Type::kArrays, {"train_inputs.npy", "train_targets.npy", "test_inputs.npy", "test_targets.npy"}},
           Row{DataConfig::Type::kFolder, {"train/", "test/"}},
           Row{DataConfig::Type::kSynthetic, {}},
       }) {
    const TemporaryFolder folder;
    const TrainConfig config = config_of(row.type, folder.path());
    EXPECT_EQ(missing_files(config, false).size(), row.files.size());
    for (const std::string& name : row.files) {
      if (name.ends_with("/")) {
        std::filesystem::create_directory(folder / name.substr(0, name.size() - 1));
      } else {
        write_text(folder / name, "x");
      }
    }
    EXPECT_EQ(missing_files(config, false), Lines{});
  }
}

TEST(ConfigFiles, WeightsTokenizersAndExportedModelsAreChecked) {
  const TemporaryFolder folder;
  write_text(folder / "train.bin", "x");
  write_text(folder / "val.bin", "x");
  TrainConfig config = config_of(DataConfig::Type::kTokens, folder.path());
  config.data.tokenizer = (folder / "tokens").string();
  config.model.init = (folder / "weights.safetensors").string();
  EXPECT_EQ(missing_files(config, false), (Lines{"data.tokenizer: " + config.data.tokenizer + " does not exist",
                                                 "model.init: " + config.model.init + " does not exist"}));
  config.model = {};
  config.data.tokenizer = "";
  config.model.type = ModelConfig::Type::kExported;
  config.model.path = (folder / "m.ddp").string();
  EXPECT_EQ(missing_files(config, false).size(), 5U);
}

TEST(ConfigFiles, AnArrayInATensorFileIsChecked) {
  const TemporaryFolder folder;
  write_text(folder / "all.safetensors", "x");
  TrainConfig config = config_of(DataConfig::Type::kArrays, folder.path());
  config.data.train_inputs = config.data.test_inputs = "all.safetensors:x";
  config.data.train_targets = config.data.test_targets = "all.safetensors:y";
  EXPECT_EQ(missing_files(config, false), Lines{});
}

TEST(ConfigFiles, AFileInPlaceOfAFolderIsReported) {
  const TemporaryFolder folder;
  write_text(folder / "train", "x");
  std::filesystem::create_directory(folder / "test");
  EXPECT_EQ(missing_files(config_of(DataConfig::Type::kFolder, folder.path()), false),
            Lines{"data.train_folder: " + (folder / "train").string() + " is not a folder"});
}

TEST(ConfigFiles, DataOfACustomProgramIsNotChecked) {
  TrainConfig config = config_of(DataConfig::Type::kIdx, "/nowhere");
  EXPECT_EQ(missing_files(config, true), Lines{});
  config.model.init = "/nowhere/weights";
  EXPECT_EQ(missing_files(config, true), Lines{"model.init: /nowhere/weights does not exist"});
}

}  // namespace
}  // namespace ddprun
