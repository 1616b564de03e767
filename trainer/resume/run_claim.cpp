#include "trainer/resume/run_claim.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/system/atomic_file.hpp"
#include "trainer/checkpoint/hashed_file.hpp"

namespace ddprun::trainer {
namespace {

constexpr char kGranted = 'g';
constexpr char kFinished = 'f';
constexpr char kRefused = 'r';

// Returns a 60-bit hash. It is long enough that texts with equal hashes can be assumed to be equal.
std::int64_t number_of(const std::string& text) {
  std::int64_t number = 0;
  const std::string digits = xxh3_128_of(text).substr(0, 15);
  std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  return number;
}

}  // namespace

RunClaim claim_run_directory(const std::filesystem::path& root, const TrainConfig& config, const Peers& peers) {
  std::exception_ptr refusal;
  std::string verdict;
  if (peers.rank() == 0) {
    try {
      const RunState state = open_run_directory(root, config, FreshStart::kNo);
      if (!state.notes.empty()) std::fprintf(stderr, "ddptrain: %s\n", state.notes.c_str());
      verdict = state.finished ? kFinished : kGranted;
    } catch (const std::exception& error) {
      refusal = std::current_exception();
      verdict = kRefused + std::string(error.what());
    }
  }
  verdict = peers.from_rank_0(verdict);
  if (refusal) std::rethrow_exception(refusal);
  if (verdict.front() == kRefused) throw UsageError("rank 0 cannot use the run directory: " + verdict.substr(1));
  return {.layout = {.root = root}, .finished = verdict.front() == kFinished};
}

void write_missing_config(const RunLayout& layout, const TrainConfig& config) {
  const std::filesystem::path file = layout.config();
  std::error_code unknown;
  if (std::filesystem::exists(file, unknown)) return;
  std::filesystem::create_directories(layout.root);
  write_file_atomically(file, to_json_text(config));
}

void write_columns(const RunLayout& layout, const std::string& plan) {
  if (plan.empty()) return;
  std::ifstream in(layout.columns(), std::ios::binary);
  const std::string present{std::istreambuf_iterator<char>(in), {}};
  if (present != plan) write_file_atomically(layout.columns(), plan);
}

// After the loss of a worker, the survivors wait while the replacement runs this function, so it must be fast. The configs are
// nearly always equal. So the ranks first compare hashes, and send a config only if the hashes differ.
void agree_on_config(const TrainConfig& config, const Peers& peers) {
  const std::string ours = to_json_text(config);
  const std::int64_t number = number_of(ours);
  if (peers.all_equal({&number, 1})) return;
  const TrainConfig theirs = parse_config(peers.from_rank_0(ours), "rank 0's config", "/", {}, nullptr,
                                          [&](const std::string&) { return config.task.defaults(); });
  std::string differences;
  for (const ConfigDifference& difference : compare_configs(theirs, config)) {
    if (!difference.job_wide) continue;
    differences += "\n  " + difference.pointer + ": " + difference.before + " on rank 0, " + difference.after + " here";
  }
  if (differences.empty() && config_digest(config) == config_digest(theirs)) return;
  throw UsageError("the config of this rank differs from the config of rank 0:" + differences);
}

void agree_on_model(const std::string& fingerprint, const Peers& peers) {
  if (fingerprint.empty() || peers.from_rank_0(fingerprint) == fingerprint) return;
  throw UsageError(
      "the exported model of this rank differs from the exported model of rank 0; give every node the same files (model.path)");
}

void agree_on_columns(const std::string& plan, const Peers& peers) {
  if (plan.empty()) return;
  const std::int64_t number = number_of(plan);
  if (peers.all_equal({&number, 1})) return;
  throw UsageError(
      "the ranks interpret the columns of the table differently, since their tables or their columns.json differ; give every "
      "node the same files (data.dir), and the same run directory if the run is resumed");
}

void agree_on_length(const RunLength& length, const Peers& peers) {
  std::array<std::int64_t, 2> bounds{length.samples_per_epoch, -length.samples_per_epoch};
  peers.smallest_of_each(bounds);
  if (bounds[0] == -bounds[1]) return;
  throw UsageError("the ranks have different training data: " + std::to_string(length.samples_per_epoch) +
                   " samples on this rank, between " + std::to_string(bounds[0]) + " and " + std::to_string(-bounds[1]) +
                   " on all ranks; give every node the same files (data.dir)");
}

}  // namespace ddprun::trainer
