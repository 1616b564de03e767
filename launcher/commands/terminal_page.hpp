// Cuts text to the size of a terminal, with one column per character, for `ddprun top`. A page that is too long or too wide
// would scroll away at each refresh. The code is pure: no I/O, no clock.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/printable.hpp"
#include "launcher/output/line_splitter.hpp"

namespace ddprun {

inline std::size_t characters_in(std::string_view text) {
  std::size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(std::max<std::size_t>(1, bytes_of_first_character(text)));
  return count;
}

// Returns the first `columns` characters of a UTF-8 line, or the whole line if `columns` is 0.
inline std::string_view cut_to_columns(std::string_view line, std::size_t columns) {
  if (columns == 0) return line;
  std::size_t end = 0;
  for (std::size_t shown = 0; end < line.size() && shown < columns; ++shown)
    end += std::max<std::size_t>(1, bytes_of_first_character(line.substr(end)));
  return line.substr(0, end);
}

// Returns `table` followed by `below`, cut to a terminal of `rows` and `columns`. A size of 0 is unknown, and nothing is cut.
// One line with a count replaces the table rows that do not fit. The last row stays empty for the cursor.
inline std::string terminal_page(std::string_view table, std::string_view below, std::size_t rows, std::size_t columns) {
  const auto lines_of = [](std::string_view text) {
    std::vector<std::string_view> lines;
    for_each_line(text, [&](std::string_view line) { lines.push_back(line); });
    return lines;
  };
  std::vector<std::string_view> lines = lines_of(table), last = lines_of(below);
  std::string left_out;
  if (const std::size_t place = std::max<std::size_t>(rows, 2 + last.size()) - 1 - last.size();
      rows > 0 && lines.size() > place) {
    left_out = std::to_string(lines.size() - place + 1) + " more lines: ddprun status shows all";
    lines.resize(place - 1);
    lines.push_back(left_out);
  }
  lines.insert(lines.end(), last.begin(), last.end());
  std::string page;
  for (const std::string_view line : lines) page.append(cut_to_columns(line, columns)).append("\n");
  return page;
}

}  // namespace ddprun
