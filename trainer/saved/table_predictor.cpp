// Implementation of table_predictor() in predictor.hpp. A row is encoded with the column plan that the training run has
// stored. So all means, scales and categories are the same as during training.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/bounded/short_quote.hpp"
#include "trainer/models/model.hpp"
#include "trainer/models/precision.hpp"
#include "trainer/saved/predictor.hpp"
#include "trainer/tables/encode_row.hpp"
#include "trainer/tables/plan_json.hpp"
#include "trainer/tables/table_file.hpp"
#include "trainer/task/classification.hpp"
#include "trainer/task/regression.hpp"

namespace ddprun::trainer {
namespace {

using Json = nlohmann::json;

std::shared_ptr<const TablePlan> plan_for(const SavedModel& saved) {
  const std::filesystem::path file = saved.config.data.columns_file;
  std::error_code unknown;
  if (!file.empty() && std::filesystem::exists(file, unknown)) return std::make_shared<const TablePlan>(read_plan(file));
  throw UsageError("the column plan of the table is missing" + (file.empty() ? std::string() : ": " + file.string()) +
                   "; expected the run directory of the training, which has columns.json");
}

// Converts a JSON value to the text of a cell in a CSV file.
std::string cell_of(const Json& value, const std::string& column) {
  if (value.is_null()) return "";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  throw UsageError("column '" + short_quote(column) + "': expected a string, a number, true, false or null");
}

class TablePredictor : public Predictor {
 public:
  explicit TablePredictor(const SavedModel& saved)
      : config_(saved.config),
        plan_(plan_for(saved)),
        encoder_(*plan_),
        model_(load_model(saved, plan_->target.is_class ? *classification(config_) : *regression(config_),
                          describe_plan(plan_))) {}

  void take(const Json& sample) override {
    const auto row = sample.find("row");
    if (row == sample.end() || !row->is_object()) {
      throw UsageError("expected \"row\" with an object that has a value for each column, such as {\"row\": {\"" +
                       first_column() + "\": ...}}");
    }
    std::vector<std::string> texts;
    std::string absent;
    for (const ColumnPlan& column : plan_->columns) {
      const bool left_out = column.kind == ColumnPlan::Kind::kLeftOut;
      const auto value = row->find(column.name);
      if (!left_out && value == row->end()) absent += (absent.empty() ? "'" : ", '") + short_quote(column.name) + "'";
      texts.push_back(left_out || value == row->end() ? std::string() : cell_of(*value, column.name));
    }
    if (!absent.empty()) throw UsageError("\"row\" lacks the columns " + absent + "; use null for a missing value");
    const std::vector<std::string_view> cells(texts.begin(), texts.end());
    std::vector<std::size_t> misfits;
    const auto width = static_cast<std::size_t>(width_of(*plan_).all());
    std::vector<float> inputs(width);
    encoder_.encode(cells, inputs, misfits);
    if (!misfits.empty()) {
      const ColumnPlan& column = plan_->columns[misfits.front()];
      throw UsageError("column '" + short_quote(column.name) + "': expected " + expected_in(column) + ", found '" +
                       short_quote(cells[misfits.front()]) + "'");
    }
    taken_.insert(taken_.end(), inputs.begin(), inputs.end());
  }

  std::vector<nlohmann::ordered_json> answers() override {
    const std::int64_t width = width_of(*plan_).all(), count = static_cast<std::int64_t>(taken_.size()) / width;
    if (count == 0) return {};
    const at::NoGradGuard no_gradients;
    const at::Tensor inputs = at::empty({count, width}, at::kFloat);
    std::ranges::copy(std::exchange(taken_, {}), inputs.mutable_data_ptr<float>());
    auto* const model = dynamic_cast<Model*>(model_.module.get());
    if (model == nullptr) throw InternalError("table_predictor: the task made another module");
    const Autocast precision(config_.precision, model_.device.type());
    at::Tensor outputs = forward(*model, inputs.to(model_.device), /*channels_last=*/false);
    if (plan_->target.is_class) outputs = at::softmax(outputs, 1);
    outputs = outputs.cpu().contiguous();
    require_numbers(outputs);
    std::vector<nlohmann::ordered_json> answers;
    const std::int64_t per_row = outputs.size(1);
    for (std::int64_t i = 0; i < count; ++i) {
      answers.push_back(answer({outputs.const_data_ptr<float>() + i * per_row, static_cast<std::size_t>(per_row)}));
    }
    return answers;
  }

 private:
  std::string first_column() const {
    for (const ColumnPlan& column : plan_->columns) {
      if (column.kind != ColumnPlan::Kind::kLeftOut) return short_quote(column.name);
    }
    return "";
  }

  nlohmann::ordered_json answer(std::span<const float> row) const {
    if (!plan_->target.is_class) return {{"number", row.front()}};
    const auto best = static_cast<std::size_t>(std::ranges::max_element(row) - row.begin());
    nlohmann::ordered_json probabilities = nlohmann::ordered_json::object();
    for (std::size_t i = 0; i < row.size(); ++i) probabilities[plan_->target.classes[i]] = row[i];
    return {{"class", plan_->target.classes[best]}, {"probability", row[best]}, {"probabilities", std::move(probabilities)}};
  }

  TrainConfig config_;
  std::shared_ptr<const TablePlan> plan_;
  RowEncoder encoder_;
  LoadedModel model_;
  std::vector<float> taken_;  // the inputs of the rows that take() has added
};

}  // namespace

std::unique_ptr<Predictor> table_predictor(const SavedModel& saved) {
  return std::make_unique<TablePredictor>(saved);
}

}  // namespace ddprun::trainer
