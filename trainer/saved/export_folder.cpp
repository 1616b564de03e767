#include "trainer/saved/export_folder.hpp"

#include <array>
#include <exception>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/system/atomic_file.hpp"
#include "trainer/models/foreign_config.hpp"
#include "trainer/saved/exported_config.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTokenizerFiles{
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json",
    "merges.txt",     "chat_template.jinja",   "tokenizer.model"};

nlohmann::ordered_json config_in(const fs::path& folder) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  std::error_code none;
  if (folder.empty() || !fs::exists(folder / "config.json", none)) return nullptr;
  const std::string text = read_bounded(folder / "config.json", kMaxBytes, "a model's config");
  try {
    require_json_within(text, {.depth = 16});
    return nlohmann::ordered_json::parse(text);
  } catch (const std::exception&) {
    return nullptr;
  }
}

class Folder {
 public:
  explicit Folder(const fs::path& path) : path_(path) {
    std::error_code failed;
    fs::create_directories(path_, failed);
    if (failed) fail(path_, failed);
  }

  void write(const char* name, const std::string& bytes) {
    try {
      write_named_file(path_ / name, bytes);
    } catch (const std::system_error& error) {
      throw UsageError(std::string("--export-weights: ") + error.what());
    }
    written_.emplace_back(name);
  }

  void copy(const fs::path& file, const std::string& name) {
    std::error_code failed, none;
    if (!fs::is_regular_file(file, none) || fs::equivalent(file, path_ / name, none)) return;
    fs::copy_file(file, path_ / name, fs::copy_options::overwrite_existing, failed);
    if (failed) fail(path_ / name, failed);
    written_.push_back(name);
  }

  const std::vector<std::string>& written() const { return written_; }

 private:
  [[noreturn]] static void fail(const fs::path& path, const std::error_code& why) {
    throw UsageError("--export-weights: " + path.string() + ": " + why.message());
  }

  fs::path path_;
  std::vector<std::string> written_;
};

void copy_tokenizer(Folder& folder, const TrainConfig& config, const fs::path& source) {
  std::error_code none;
  fs::path from = config.data.tokenizer.empty() ? source : fs::path(config.data.tokenizer);
  if (from.empty()) return;
  if (!fs::is_directory(from, none)) {
    folder.copy(from, "tokenizer.json");
    from = from.parent_path();
    folder.copy(from / "tokenizer_config.json", "tokenizer_config.json");
    return folder.copy(from / "special_tokens_map.json", "special_tokens_map.json");
  }
  for (const char* const name : kTokenizerFiles) folder.copy(from / name, name);
}

}  // namespace

fs::path pretrained_source(const TrainConfig& config) {
  if (config.model.init.empty()) return {};
  std::error_code none;
  const fs::path init = config.model.init;
  const fs::path folder = fs::is_directory(init, none) ? init : init.parent_path();
  return is_foreign_config(config_in(folder)) ? folder : fs::path();
}

std::string export_folder(const fs::path& to, const std::string& weights, const TrainConfig& config, const fs::path& source) {
  const std::string described = exported_config(config, config_in(source)).dump(2) + "\n";
  Folder folder(to);
  folder.write("model.safetensors", weights);
  copy_tokenizer(folder, config, source);
  if (!source.empty()) folder.copy(source / "generation_config.json", "generation_config.json");
  folder.write("config.json", described);
  std::string names;
  for (const std::string& name : folder.written()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

}  // namespace ddprun::trainer
