// The keys and sections that a config may contain: built-in keys and sections, and the keys of a custom worker program. Only
// common/config uses this file.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/config/keys.hpp"

namespace ddprun {

// Returns the dotted name of a key: "optimizer.lr" for "optimizer" and "lr". `section` is empty for a key at the top level.
std::string dotted_name(const std::string& section, const std::string& name);

class KnownNames {
 public:
  explicit KnownNames(const TaskConfig& task) : keys_(keys_with(task)), sections_(sections_with(task)) {}

  const std::vector<Key>& keys() const { return keys_; }
  // Returns the key with that dotted name; nullptr if unknown.
  const Key* find(std::string_view dotted) const;
  bool is_section(std::string_view dotted) const;
  // Returns a hint for an unknown key. If the key belongs to another section, such as "lr" at the top level, the hint contains
  // that section. For any other key, the hint is the most similar name in the section.
  std::string suggestion(const std::string& section, const std::string& name) const;

 private:
  // Returns the names that the section may contain.
  std::vector<std::string_view> names_in(const std::string& section) const;

  std::vector<Key> keys_;
  std::vector<Section> sections_;
};

}  // namespace ddprun
