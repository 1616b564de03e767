// Selects parameters or layers by name patterns: for freezing, optimizer groups and low-rank updates. A * matches any sequence
// of characters, including none.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

bool matches(std::string_view pattern, std::string_view name);

// Returns for each name the index of the first pattern that matches it, or nullopt if no pattern does. `tied` maps a second
// name of a tied parameter to its name in `names`. A pattern may match either name. Throws UsageError if a pattern matches no
// name. The message starts with `key`, the config key of the patterns, and lists the names. `what` is the kind of the names,
// such as "linear layer".
std::vector<std::optional<std::size_t>> first_matches(const std::string& key, const std::vector<std::string>& patterns,
                                                      const std::vector<std::string>& names,
                                                      const std::map<std::string, std::string>& tied,
                                                      const std::string& what = "parameter");

// Returns the names as a text: "a, b, c". If there are more than 20 names, the text has the first 20 and the number of the
// remaining names: "a, b and 40 more".
std::string names_text(const std::vector<std::string>& names);

}  // namespace ddprun::trainer
