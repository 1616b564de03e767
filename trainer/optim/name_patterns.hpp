// Parameters chosen by patterns of their names: what is frozen, what is in which group. * stands for any run of characters.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

bool matches(std::string_view pattern, std::string_view name);

// For each of `names` the number of the first pattern that matches it, or one of its other names (`tied`: those, and the name
// that each stands for). Throws UsageError beginning with `key`, and listing the names, for a pattern that matches none of
// them, which are `what`.
std::vector<std::optional<std::size_t>> first_matches(const std::string& key, const std::vector<std::string>& patterns,
                                                      const std::vector<std::string>& names,
                                                      const std::map<std::string, std::string>& tied,
                                                      const std::string& what = "parameter");

// "a, b, c" or, of very many, "a, b and 40 more".
std::string some_of(const std::vector<std::string>& names);

}  // namespace ddprun::trainer
