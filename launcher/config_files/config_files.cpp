#include "launcher/config_files/config_files.hpp"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <initializer_list>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"

namespace ddprun {
namespace {

namespace fs = std::filesystem;
using Type = DataConfig::Type;

enum class Kind { kFile, kFolder, kEither };

// Describes why the file cannot be used. The text is empty if the file exists, is of the given kind, and is readable.
std::string problem_with(const fs::path& path, Kind kind) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    const bool absent = !error || error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
    return absent ? "does not exist" : error.message();
  }
  const bool folder = fs::is_directory(status);
  if (kind == Kind::kFolder && !folder) return "is not a folder";
  if (kind == Kind::kFile && folder) return "is a folder, expected a file";
  if (::access(path.c_str(), folder ? R_OK | X_OK : R_OK) == 0) return "";
  return std::error_code(errno, std::generic_category()).message();
}

class FileCheck {
 public:
  void at(const std::string& key, const fs::path& path, Kind kind) {
    if (const std::string problem = problem_with(path, kind); !problem.empty()) add(key, path, problem);
  }
  // Checks the file. If it does not exist, checks the same name with .gz.
  void at_plain_or_gz(const std::string& key, const fs::path& path) {
    const fs::path compressed = path.string() + ".gz";
    std::error_code unknown;
    if (!fs::exists(path, unknown) && !fs::exists(compressed, unknown)) {
      return add(key, path, "does not exist, and neither does " + compressed.filename().string());
    }
    at(key, fs::exists(path, unknown) ? path : compressed, Kind::kFile);
  }
  void add(const std::string& key, const fs::path& path, const std::string& problem) {
    problems_.push_back(key + ": " + path.string() + " " + problem);
  }
  std::vector<std::string> take() { return std::move(problems_); }

 private:
  std::vector<std::string> problems_;
};

// Returns the file in FILE.npy or FILE.safetensors:NAME, without the array's name.
std::string file_of_array(const std::string& text) {
  constexpr std::string_view kEnding = ".safetensors:";
  const std::size_t at = text.find(kEnding);
  return at == std::string::npos ? text : text.substr(0, at + kEnding.size() - 1);
}

void check_data(FileCheck& file_check, const DataConfig& data) {
  if (data.type == Type::kSynthetic) return;
  const fs::path folder = data.dir;
  if (const std::string problem = problem_with(folder, Kind::kFolder); !problem.empty()) {
    return file_check.add("data.dir", folder, problem);
  }
  const auto files = [&](std::initializer_list<std::pair<const char*, std::string>> named, Kind kind = Kind::kFile) {
    for (const auto& [key, name] : named) file_check.at(std::string("data.") + key, folder / name, kind);
  };
  switch (data.type) {
    case Type::kIdx:
      for (const auto& [key, name] : {std::pair{"train_images", data.train_images},
                                      {"train_labels", data.train_labels},
                                      {"test_images", data.test_images},
                                      {"test_labels", data.test_labels}}) {
        file_check.at_plain_or_gz(std::string("data.") + key, folder / name);
      }
      break;
    case Type::kCifar10:
      for (const char* name : {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                               "data_batch_5.bin", "test_batch.bin"}) {
        file_check.at("data.dir", folder / name, Kind::kFile);
      }
      break;
    case Type::kCifar100:
      for (const char* name : {"train.bin", "test.bin"}) file_check.at("data.dir", folder / name, Kind::kFile);
      break;
    case Type::kTensors:
      files({{"train", data.train}, {"test", data.test}});
      break;
    case Type::kTokens:
      files({{"train_tokens", data.train_tokens}, {"test_tokens", data.test_tokens}});
      if (!data.tokenizer.empty()) file_check.at("data.tokenizer", data.tokenizer, Kind::kEither);
      break;
    case Type::kCsv:
      files({{"train_table", data.train_table}, {"test_table", data.test_table}});
      break;
    case Type::kTable:
      files({{"train_table", data.train_table}});
      if (!data.test_table.empty()) files({{"test_table", data.test_table}});
      break;
    case Type::kArrays:
      files({{"train_inputs", file_of_array(data.train_inputs)},
             {"train_targets", file_of_array(data.train_targets)},
             {"test_inputs", file_of_array(data.test_inputs)},
             {"test_targets", file_of_array(data.test_targets)}});
      break;
    case Type::kFolder:
      files({{"train_folder", data.train_folder}, {"test_folder", data.test_folder}}, Kind::kFolder);
      break;
    case Type::kSynthetic:
      break;
  }
}

}  // namespace

std::vector<std::string> missing_files(const TrainConfig& config, bool custom_program) {
  FileCheck file_check;
  if (!custom_program) {
    check_data(file_check, config.data);
    if (config.model.type == ModelConfig::Type::kExported) {
      for (const char* name : {"model.json", "train.graph", "eval.graph", "init.safetensors", "check.safetensors"}) {
        file_check.at("model.path", fs::path(config.model.path) / name, Kind::kFile);
      }
    }
  }
  if (!config.model.init.empty()) file_check.at("model.init", config.model.init, Kind::kEither);
  return file_check.take();
}

void require_files(const TrainConfig& config, bool custom_program) {
  const std::vector<std::string> missing = missing_files(config, custom_program);
  if (missing.empty()) return;
  std::string text = "the job cannot start, because files that the config names are missing or cannot be read on this machine:";
  for (const std::string& each : missing) text += "\n  " + each;
  throw UsageError(text);
}

}  // namespace ddprun
