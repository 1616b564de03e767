// Provides the parameters and gradients that make_golden.py uses, and the comparison with the results of PyTorch.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/StringUtil.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

using Shape = std::vector<std::int64_t>;
using Json = nlohmann::json;
using Absent = std::set<std::pair<std::int64_t, std::int64_t>>;

inline const std::vector<Shape> kShapes{{5, 3}, {7}, {33}};
inline constexpr std::int64_t kSteps = 6;

// Returns numbers from a formula, which make_golden.py also uses.
inline at::Tensor filled(std::int64_t kind, std::int64_t step, std::int64_t tensor) {
  at::Tensor values = at::empty(kShapes[static_cast<std::size_t>(tensor)], at::kFloat);
  for (std::int64_t i = 0; i < values.numel(); ++i) {
    const std::int64_t mixed = (kind * 7919 + step * 104729 + tensor * 1299709 + i * 15485863) % 2047 - 1023;
    values.mutable_data_ptr<float>()[i] = static_cast<float>(mixed) / 1024.0F;
  }
  return values;
}

inline std::vector<NamedTensor> fresh_parameters() {
  std::vector<NamedTensor> parameters;
  for (std::int64_t t = 0; t < 3; ++t) {
    parameters.push_back({c10::str("p", t), filled(0, 0, t).requires_grad_()});
  }
  return parameters;
}

inline void set_gradients(const std::vector<NamedTensor>& parameters, std::int64_t step, const Absent& absent = {}) {
  for (std::int64_t t = 0; t < 3; ++t) {
    at::Tensor& gradient = parameters[static_cast<std::size_t>(t)].tensor.mutable_grad();
    gradient = absent.contains({step, t}) ? at::Tensor() : filled(1, step, t);
  }
}

inline void expect_bits(const at::Tensor& tensor, const Json& hexes, const std::string& what) {
  ASSERT_EQ(static_cast<std::size_t>(tensor.numel()), hexes.size()) << what;
  for (std::int64_t i = 0; i < tensor.numel(); ++i) {
    const std::string text = hexes[static_cast<std::size_t>(i)];
    EXPECT_EQ(tensor.const_data_ptr<float>()[i], std::strtof(text.c_str(), nullptr)) << what << " " << i;
  }
}

}  // namespace ddprun::trainer
