#include "trainer/state/pretrained_files.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/bounded/short_quote.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::size_t kMaxIndexBytes = std::size_t{1} << 26;

// Maps each tensor to the name of its shard.
using WeightMap = std::map<std::string, std::string>;

WeightMap weight_map_of(const fs::path& index) {
  const std::string text = read_bounded(index, kMaxIndexBytes, "an index of weights");
  const auto fail = [&](const std::string& problem) { throw UsageError(index.string() + ": " + problem); };
  nlohmann::json json;
  try {
    json = parse_json_within(text, {.depth = 8});
  } catch (const UsageError& problem) {
    fail(problem.what());
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    fail("expected an object \"weight_map\" that maps tensors to files");
  }
  WeightMap map;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    if (name.empty() || fs::path(name).filename() != name || name == "." || name == "..") {
      fail("the file of tensor '" + short_quote(tensor) + "' is " + short_quote(file.dump()) +
           "; expected the name of a file in the same folder");
    }
    map.emplace(tensor, name);
  }
  return map;
}

std::vector<NamedTensor> read_shards(const fs::path& index) {
  const WeightMap map = weight_map_of(index);
  std::set<std::string> files, found;
  for (const auto& [tensor, file] : map) files.insert(file);
  std::vector<NamedTensor> tensors;
  for (const std::string& file : files) {
    for (NamedTensor& tensor : read_safetensors(index.parent_path() / file).tensors) {
      const auto listed = map.find(tensor.name);
      if (listed == map.end() || listed->second != file || !found.insert(tensor.name).second) continue;
      tensors.push_back(std::move(tensor));
    }
  }
  for (const auto& [tensor, file] : map) {
    if (found.contains(tensor)) continue;
    throw UsageError(index.string() + ": lists the tensor '" + short_quote(tensor) + "' in " + file +
                     ", but that file does not contain it");
  }
  return tensors;
}

}  // namespace

bool is_pretrained_folder(const fs::path& folder) {
  std::error_code unknown;
  return fs::exists(folder / "config.json", unknown) &&
         (fs::exists(folder / kWeightsFile, unknown) || fs::exists(folder / kIndexFile, unknown));
}

bool is_shard_index(const fs::path& file) {
  return file.filename().string().ends_with(".safetensors.index.json");
}

std::vector<NamedTensor> read_pretrained(const fs::path& source) {
  if (is_shard_index(source)) return read_shards(source);
  // Like transformers, prefer the single file.
  std::error_code unknown;
  const fs::path single = source / kWeightsFile;
  return fs::exists(single, unknown) ? read_safetensors(single).tensors : read_shards(source / kIndexFile);
}

}  // namespace ddprun::trainer
