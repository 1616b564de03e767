#include "trainer/state/run_identity.hpp"

#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>

#include "common/base/error.hpp"
#include "common/base/json_problem.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/system/atomic_file.hpp"

namespace ddprun::trainer {
namespace {

using nlohmann::json;

std::string random_id() {
  std::uint64_t number = 0;
  while (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number)) {
    if (errno != EINTR) throw InternalError("the kernel returned no random numbers (getrandom)");
  }
  std::array<char, 17> digits{};
  std::snprintf(digits.data(), digits.size(), "%016llx", static_cast<unsigned long long>(number));
  return digits.data();
}

}  // namespace

bool RunIdentity::has(const std::string& run, std::int64_t step) const {
  if (run == id) return true;
  for (const Earlier& one : earlier) {
    if (one.id == run && step <= one.until) return true;
  }
  return false;
}

RunIdentity new_run() {
  return {.id = random_id()};
}

RunIdentity new_run_from(const RunIdentity& known, const std::string& run, std::int64_t step) {
  RunIdentity result = new_run();
  std::vector<RunIdentity::Earlier> past = known.earlier;
  if (known.known()) past.push_back({.id = known.id, .until = step});
  for (std::size_t i = 0; i < past.size(); ++i) {
    if (past[i].id == run) result.earlier.assign(past.begin(), past.begin() + static_cast<std::ptrdiff_t>(i));
  }
  result.earlier.push_back({.id = run, .until = step});
  return result;
}

std::string text_of(const RunIdentity& run) {
  json earlier = json::array();
  for (const RunIdentity::Earlier& one : run.earlier) earlier.push_back({{"run", one.id}, {"until_step", one.until}});
  json value{{"run", run.id}, {"earlier", earlier}};
  if (!run.data.empty()) value["data"] = run.data;
  return value.dump() + "\n";
}

RunIdentity run_identity_of(const std::string& text) {
  try {
    require_json_within(text, {.depth = 8});
    const json value = json::parse(text);
    RunIdentity run{.id = value.at("run").get<std::string>()};
    if (const auto data = value.find("data"); data != value.end()) run.data = data->get<std::string>();
    for (const json& one : value.at("earlier")) {
      run.earlier.push_back({.id = one.at("run").get<std::string>(), .until = one.at("until_step").get<std::int64_t>()});
    }
    return run;
  } catch (const json::exception& error) {
    throw UsageError("does not contain a valid run identity (" + json_problem(error, text) + ")");
  }
}

std::optional<RunIdentity> read_run_identity(const std::filesystem::path& file) {
  std::error_code unknown;
  if (file.empty() || !std::filesystem::exists(file, unknown)) return std::nullopt;
  constexpr std::size_t kMaxBytes = std::size_t{1} << 24;
  const std::string text = read_bounded(file, kMaxBytes, "a run's identity");
  try {
    return run_identity_of(text);
  } catch (const UsageError& error) {
    throw UsageError(file.string() + " " + error.what());
  }
}

void write_run_identity(const std::filesystem::path& file, const RunIdentity& run) {
  if (file.empty() || !run.known()) return;
  try {
    if (read_run_identity(file) == run) return;
  } catch (const UsageError&) {
    // the file can't be parsed and is overwritten below
  }
  std::filesystem::create_directories(file.parent_path());
  write_file_atomically(file, text_of(run));
}

}  // namespace ddprun::trainer
