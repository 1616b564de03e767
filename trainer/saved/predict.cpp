// Implementation of predict.hpp: reads the lines, passes them to a Predictor in batches, and writes the answers.
#include "trainer/saved/predict.hpp"

#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/saved/predictor.hpp"
#include "trainer/saved/saved_model.hpp"

namespace ddprun::trainer {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMaxInFlight = 256;  // largest number of samples in memory

std::unique_ptr<Predictor> predictor_of(const SavedModel& saved, const std::filesystem::path& from) {
  if (saved.config.model.is_language_model()) return text_predictor(saved);
  if (saved.config.model.type == ModelConfig::Type::kExported) {
    throw UsageError("predict supports only built-in models; " + from.string() + " belongs to an exported model");
  }
  using Type = DataConfig::Type;
  const Type data = saved.config.data.type;
  if (data == Type::kIdx || data == Type::kCifar10 || data == Type::kCifar100) return image_predictor(saved);
  if (data == Type::kTable) return table_predictor(saved);
  throw UsageError("predict supports data.type idx, cifar10, cifar100, tokens and table, but " + from.string() +
                   " has another data.type. Export its weights with ddptrain --export-weights for your own program");
}

class Lines {
 public:
  Lines(const std::filesystem::path& file, std::unique_ptr<Predictor> predictor)
      : name_(file.empty() ? "stdin" : file.string()), predictor_(std::move(predictor)) {}

  void take(const std::string& line) {
    ++number_;
    if (line.find_first_not_of(" \t\r") == std::string::npos) return;
    const Json sample = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    try {
      if (!sample.is_object()) throw UsageError("expected one JSON object per line");
      if (sample.contains("id") && sample["id"].is_structured()) throw UsageError("\"id\": expected a string or a number");
      predictor_->take(sample);
    } catch (const UsageError& problem) {
      write_answers();
      throw UsageError(name_ + ", line " + std::to_string(number_) + ": " + problem.what());
    }
    ids_.push_back(sample.contains("id") ? std::optional<Json>(sample["id"]) : std::nullopt);
  }

  std::int64_t waiting() const { return static_cast<std::int64_t>(ids_.size()); }

  void write_answers() {
    std::size_t i = 0;
    for (const nlohmann::ordered_json& answer : predictor_->answers()) {
      nlohmann::ordered_json line = nlohmann::ordered_json::object();
      if (const auto& id = ids_[i++]) line["id"] = *id;
      line.update(answer);
      std::cout << line.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) << '\n';
    }
    ids_.clear();
    if (!std::cout.flush()) throw InternalError("stdout cannot be written");
  }

 private:
  std::string name_;
  std::unique_ptr<Predictor> predictor_;
  std::vector<std::optional<Json>> ids_;  // the "id" of each sample that has no answer yet
  std::int64_t number_ = 0;
};

}  // namespace

void require_numbers(const at::Tensor& outputs) {
  if (at::isfinite(outputs).all().item<bool>()) return;
  throw DivergedError("the model's outputs are NaN or infinite: these weights cannot be used for predictions");
}

void predict(const PredictOptions& options) {
  std::ifstream file;
  if (!options.input.empty()) {
    file.open(options.input);
    if (!file) throw UsageError("--input: " + options.input.string() + " cannot be read");
  }
  std::istream& input = options.input.empty() ? std::cin : file;
  const SavedModel saved = find_saved_model(options.model.from, options.model.config, options.model.overrides);
  use_determinism(saved.config.deterministic);
  Lines lines(options.input, predictor_of(saved, options.model.from));
  const std::int64_t max_waiting = std::min(saved.config.eval_batch_size, kMaxInFlight);
  for (std::string line; std::getline(input, line);) {
    lines.take(line);
    if (lines.waiting() == max_waiting) lines.write_answers();
  }
  lines.write_answers();
  if (input.bad())
    throw UsageError((options.input.empty() ? "stdin" : "--input: " + options.input.string()) + " cannot be read");
}

}  // namespace ddprun::trainer
