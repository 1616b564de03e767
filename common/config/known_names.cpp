#include "common/config/known_names.hpp"

#include <algorithm>

#include "common/base/suggest.hpp"
#include "common/other_words/foreign_names.hpp"

namespace ddprun {

std::string dotted_name(const std::string& section, const std::string& name) {
  return section.empty() ? name : section + "." + name;
}

const Key* KnownNames::find(std::string_view dotted) const {
  const auto found = std::find_if(keys_.begin(), keys_.end(), [&](const Key& key) { return key.dotted() == dotted; });
  return found == keys_.end() ? nullptr : &*found;
}

bool KnownNames::is_section(std::string_view dotted) const {
  return std::any_of(sections_.begin(), sections_.end(), [&](const Section& s) { return s.name == dotted; });
}

std::string KnownNames::suggestion(const std::string& section, const std::string& name) const {
  if (const std::size_t dot = name.find('.'); dot != std::string::npos && find(dotted_name(section, name)) != nullptr) {
    return " Write it as \"" + name.substr(0, dot) + "\": {\"" + name.substr(dot + 1) + "\": ...}.";
  }
  if (section.empty() && name == kTaskSection) {
    return R"( Only a custom worker program has keys in this section: set the key "worker" or the option --worker to the )"
           R"(program's path. PROGRAM --describe lists the keys.)";
  }
  std::vector<std::string> elsewhere;
  for (const Key& key : keys_) {
    if (key.name == name) elsewhere.push_back(key.dotted());
  }
  if (elsewhere.size() == 1) return " Did you mean '" + elsewhere.front() + "'?";
  const std::string hint = hint_for_foreign_key(name);
  return hint.empty() ? did_you_mean(name, names_in(section)) : hint;
}

std::vector<std::string_view> KnownNames::names_in(const std::string& section) const {
  std::vector<std::string_view> out;
  for (const Key& key : keys_) {
    if (key.section == section) out.push_back(key.name);
  }
  for (const Section& child : sections_) {
    const std::size_t dot = child.name.rfind('.');
    const std::string parent = dot == std::string::npos ? "" : child.name.substr(0, dot);
    if (!child.name.empty() && parent == section) out.push_back(std::string_view(child.name).substr(dot + 1));
  }
  return out;
}

}  // namespace ddprun
