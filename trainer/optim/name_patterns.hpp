// Selects parameters by name patterns, for freezing and for optimizer groups. * matches any sequence of characters.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::trainer {

bool matches(std::string_view pattern, std::string_view name);

// Returns, for each of `names`, the index of the first pattern that matches it or one of its other names. `tied` has these
// other names, each with its name in `names`. Throws UsageError for a pattern without a match. The message begins with `key`
// and lists the names; `what` is the kind of things named.
std::vector<std::optional<std::size_t>> first_matches(const std::string& key, const std::vector<std::string>& patterns,
                                                      const std::vector<std::string>& names,
                                                      const std::map<std::string, std::string>& tied,
                                                      const std::string& what = "parameter");

// Returns "a, b, c", or "a, b and 40 more" for a long list.
std::string some_of(const std::vector<std::string>& names);

}  // namespace ddprun::trainer
