#include "trainer/optim/tensor_fit.hpp"

#include <c10/core/GradMode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <unordered_set>

#include "trainer/optim/name_patterns.hpp"

namespace ddprun::trainer {
namespace {

void add(std::string& text, const std::vector<std::string>& names, const char* of_one, const char* of_many) {
  if (names.empty()) return;
  const bool first = text.empty();
  text += (first ? "" : "; ") + std::to_string(names.size()) + (first ? names.size() == 1 ? " tensor" : " tensors" : "");
  text += (names.size() == 1 ? of_one : of_many) + names_text(names);
}

}  // namespace

std::string misfit(const std::vector<NamedTensor>& needed, const std::vector<NamedTensor>& saved) {
  std::unordered_map<std::string_view, const at::Tensor*> found_by_name;
  std::vector<std::string> missing;
  std::vector<std::string> unexpected;
  std::vector<std::string> of_other_shape;
  for (const NamedTensor& entry : saved) {
    if (!found_by_name.emplace(entry.name, &entry.tensor).second) unexpected.push_back(entry.name + " (twice)");
  }
  std::unordered_set<std::string_view> known;
  for (const NamedTensor& entry : needed) {
    known.insert(entry.name);
    const auto found = found_by_name.find(entry.name);
    if (found == found_by_name.end()) {
      missing.push_back(entry.name);
    } else if (found->second->sizes() != entry.tensor.sizes()) {
      of_other_shape.push_back(c10::str(entry.name, " ", found->second->sizes(), " instead of ", entry.tensor.sizes()));
    }
  }
  for (const auto& [name, tensor] : found_by_name) {
    if (!known.contains(name)) unexpected.emplace_back(name);
  }
  std::ranges::sort(unexpected);
  std::string text;
  add(text, missing, " is missing: ", " are missing: ");
  add(text, unexpected, " is unexpected: ", " are unexpected: ");
  add(text, of_other_shape, " has another shape: ", " have another shape: ");
  return text;
}

std::unordered_map<std::string_view, const at::Tensor*> by_name(const std::vector<NamedTensor>& tensors) {
  std::unordered_map<std::string_view, const at::Tensor*> found;
  for (const NamedTensor& entry : tensors) found.emplace(entry.name, &entry.tensor);
  return found;
}

void copy_by_name(const std::vector<NamedTensor>& targets, const std::vector<NamedTensor>& saved) {
  const c10::NoGradGuard no_gradients;
  const auto tensors = by_name(saved);
  for (const NamedTensor& target : targets) target.tensor.copy_(*tensors.at(target.name));
}

}  // namespace ddprun::trainer
