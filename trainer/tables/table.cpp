#include "trainer/tables/table.hpp"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trainer/data/fingerprint.hpp"
#include "trainer/data/samples.hpp"

namespace ddprun::trainer {
namespace {

TensorDescription row_of(const at::Tensor& all) {
  return {.sizes = all.sizes().slice(1).vec(), .type = all.scalar_type()};
}

at::Tensor rows_of(const at::Tensor& all, std::span<const std::int64_t> rows) {
  return copied_rows(static_cast<const char*>(all.const_data_ptr()), row_of(all), rows);
}

std::string_view bytes_of_table(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

class TableSource : public Source {
 public:
  explicit TableSource(Table table) : table_(std::move(table)) {}

  std::int64_t size() const override { return table_.inputs.size(0); }

  Description describe() const override { return {.tensors = {row_of(table_.inputs), row_of(table_.targets)}}; }

  Batch make(std::span<const std::int64_t> samples, const std::optional<Draws>&) const override {
    return {.tensors = {rows_of(table_.inputs, samples), rows_of(table_.targets, samples)},
            .weight = static_cast<double>(samples.size())};
  }

  std::string fingerprint() const override {
    std::string shape;
    for (const std::int64_t size : table_.inputs.sizes()) shape += (shape.empty() ? "" : "x") + std::to_string(size);
    return shape + " " + fingerprint_of(bytes_of_table(table_.inputs)) + fingerprint_of(bytes_of_table(table_.targets));
  }

 private:
  Table table_;
};

}  // namespace

std::shared_ptr<const Source> table_source(Table table) {
  return std::make_shared<TableSource>(std::move(table));
}

Description describe_row(std::vector<std::int64_t> inputs, DataConfig::Predict predict, std::int64_t numbers) {
  const bool is_class = predict == DataConfig::Predict::kClass;
  return {.tensors = {{.sizes = std::move(inputs), .type = at::kFloat},
                      {.sizes = is_class ? std::vector<std::int64_t>{} : std::vector{numbers},
                       .type = is_class ? at::kLong : at::kFloat}}};
}

}  // namespace ddprun::trainer
