#include "trainer/resume/visible_checkpoints.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "common/config/parse_config.hpp"
#include "trainer/checkpoint/local_copies.hpp"

namespace ddprun::trainer {

CheckpointPlaces checkpoint_places(const RunLayout& layout, const TrainConfig& config, bool owns_node_disk) {
  CheckpointPlaces places{.run_directory = layout.checkpoints(), .owns_node_disk = owns_node_disk, .run_file = layout.run()};
  if (config.checkpoint.local_dir.empty()) return places;
  places.local_copies = local_copies_of(config.checkpoint.local_dir, layout.root, config_digest(config));
  return places;
}

VisibleCheckpoints::VisibleCheckpoints(const CheckpointPlaces& places) {
  if (!places.local_copies.empty()) add_local(places.local_copies);
  add(places.run_directory, false);
  std::stable_sort(copies_.begin(), copies_.end(),
                   [](const Copy& a, const Copy& b) { return a.candidate.step > b.candidate.step; });
}

void VisibleCheckpoints::add_local(const std::filesystem::path& copies) {
  try {
    for (const auto& folder : copy_folders(copies)) add(folder, true);
  } catch (const std::system_error& error) {
    list_error_ = error.what();
  }
}

void VisibleCheckpoints::add(const std::filesystem::path& folder, bool local) {
  for (Candidate& candidate : list_checkpoints(folder)) copies_.push_back({.candidate = std::move(candidate), .local = local});
}

void VisibleCheckpoints::judge(Copy& copy) {
  if (!copy.judged) judge_checkpoint(copy.candidate);
  copy.judged = true;
}

void VisibleCheckpoints::verify_shared(std::int64_t step, const std::string& content, const std::filesystem::path& loaded) {
  for (Copy& copy : copies_) {
    if (copy.local || copy.candidate.step != step || copy.candidate.path == loaded) continue;
    judge(copy);
    if (copy.candidate.content == content) verify_checkpoint(copy.candidate);
  }
}

void VisibleCheckpoints::mark(const std::filesystem::path& checkpoint, const std::string& problem) {
  for (Copy& copy : copies_) {
    if (copy.candidate.path != checkpoint) continue;
    copy.judged = true;
    copy.candidate.problem = problem;
    copy.candidate.content.clear();
  }
}

const VisibleCheckpoints::Copy* VisibleCheckpoints::newest_valid(const std::function<bool(const Copy&)>& counts) {
  for (Copy& copy : copies_) {
    judge(copy);
    if (copy.candidate.problem.empty() && counts(copy)) return &copy;
  }
  return nullptr;
}

const VisibleCheckpoints::Copy* VisibleCheckpoints::find(std::int64_t step, const std::string& content) {
  for (Copy& copy : copies_) {
    if (copy.candidate.step != step) continue;
    judge(copy);
    if (copy.candidate.content == content) return &copy;
  }
  return nullptr;
}

std::vector<VisibleCheckpoints::Copy> VisibleCheckpoints::judged(Which which) {
  std::vector<Copy> found;
  for (Copy& copy : copies_) {
    if (which != Which::kAll && copy.local != (which == Which::kLocal)) continue;
    judge(copy);
    found.push_back(copy);
  }
  return found;
}

}  // namespace ddprun::trainer
