// PyTorch's values (golden.json, written by make_golden.py) for the tests of this folder.
#pragma once

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace ddprun::trainer {

inline const nlohmann::json& golden() {
  static const nlohmann::json content = [] {
    std::ifstream file(std::filesystem::path(__FILE__).parent_path() / "golden.json");
    return nlohmann::json::parse(file);
  }();
  return content;
}

}  // namespace ddprun::trainer
