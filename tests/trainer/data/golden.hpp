// Reads the values that PyTorch computed for the tests of this folder. make_golden.py writes them to golden.json.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/repository.hpp"

namespace ddprun::trainer {

inline const nlohmann::json& golden() {
  static const nlohmann::json content = [] {
    std::ifstream file(test::repository() / "tests/trainer/data/golden.json");
    return nlohmann::json::parse(file);
  }();
  return content;
}

}  // namespace ddprun::trainer
