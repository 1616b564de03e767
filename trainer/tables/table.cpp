// Implementation of table.hpp.
#include "trainer/tables/table.hpp"

#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "trainer/data/fingerprint.hpp"

namespace ddprun::trainer {
namespace {

at::Tensor rows_of(const at::Tensor& all, std::span<const std::int64_t> rows) {
  std::vector<std::int64_t> sizes = all.sizes().vec();
  sizes[0] = static_cast<std::int64_t>(rows.size());
  at::Tensor taken = at::empty(sizes, at::TensorOptions().dtype(all.scalar_type()));
  const std::size_t bytes = all.nbytes() / static_cast<std::size_t>(all.size(0));
  const auto* const from = static_cast<const char*>(all.const_data_ptr());
  auto* to = static_cast<char*>(taken.mutable_data_ptr());
  for (const std::int64_t row : rows) {
    std::memcpy(to, from + static_cast<std::size_t>(row) * bytes, bytes);
    to += bytes;
  }
  return taken;
}

std::string_view bytes_of_table(const at::Tensor& tensor) {
  return {static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()};
}

class TableSource : public Source {
 public:
  explicit TableSource(Table table) : table_(std::move(table)) {}

  std::int64_t size() const override { return table_.inputs.size(0); }

  Description describe() const override {
    Description description;
    for (const at::Tensor& tensor : {table_.inputs, table_.targets}) {
      description.tensors.push_back({.sizes = tensor.sizes().slice(1).vec(), .type = tensor.scalar_type()});
    }
    return description;
  }

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

std::int64_t rows_to_use(std::int64_t asked, std::int64_t found, const char* key, const std::string& file) {
  if (asked <= found) return asked == 0 ? found : asked;
  throw UsageError(std::string(key) + " is " + std::to_string(asked) + ", but '" + file + "' holds only " +
                   std::to_string(found) + " samples. Lower it, or set it to 0 for all.");
}

}  // namespace ddprun::trainer
