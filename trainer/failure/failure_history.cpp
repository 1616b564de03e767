#include "trainer/failure/failure_history.hpp"

#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace ddprun::trainer {

FailureHistory read_failure_history(std::istream& metrics) {
  FailureHistory history;
  std::optional<std::int64_t> before;  // time of the previous record, in nanoseconds
  bool ended = true;                   // true if the previous record is "end", which is written before a normal exit
  for (std::string line; std::getline(metrics, line);) {
    const auto record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!record.is_object() || !record.contains("event") || !record["event"].is_string()) continue;
    if (!record.contains("time_ns") || !record["time_ns"].is_number_integer()) continue;
    const auto& event = record["event"].get_ref<const std::string&>();
    const auto time = record["time_ns"].get<std::int64_t>();
    const bool begins = event == "restart" || event == "resume" || event == "regroup";
    if (event == "restart" || event == "regroup" || (event == "resume" && !ended)) ++history.failures;
    if (!begins && before && time > *before) history.seconds += static_cast<double>(time - *before) / 1e9;
    before = time;
    ended = event == "end";
  }
  return history;
}

FailureHistory read_failure_history(const std::filesystem::path& metrics) {
  std::ifstream in(metrics, std::ios::binary);
  return read_failure_history(in);
}

}  // namespace ddprun::trainer
