// Contains functions for charts of a run: they escape text, format numbers, choose tick marks, and limit the number of points
// of a curve. The code is pure: no I/O, no clock.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace ddprun::svg {

struct Point {
  double x;
  double y;
};

// Escapes text for SVG and HTML.
inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        // HTML does not allow control characters, so a space replaces each of them.
        out += (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f ? ' ' : c;
    }
  }
  return out;
}

// Formats a number with six significant digits.
inline std::string decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// Returns about `most` round numbers between `low` and `high`. Their distance is 1, 2 or 5 times a power of ten. Returns no
// numbers if the range is empty, infinite, or too narrow for a double. The function avoids libm, since no other part of ddprun
// loads that library.
inline std::vector<double> ticks(double low, double high, int most) {
  constexpr double kMaxCounted = 1e15;  // below this value a double represents all whole numbers exactly
  std::vector<double> all;
  if (!(high > low) || !(high - low < std::numeric_limits<double>::infinity()) || most < 1) return all;
  const double least = (high - low) / most;
  double power = 1;
  while (power > least && power > 1e-300) power /= 10;
  while (power * 10 <= least) power *= 10;
  double apart = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0})
    if (factor * power * most >= high - low) apart = factor * power;
  if (!(low / apart > -kMaxCounted && high / apart < kMaxCounted)) return all;
  auto next = static_cast<std::int64_t>(low / apart);  // the cast truncates towards zero
  if (static_cast<double>(next) * apart < low) ++next;
  for (; static_cast<double>(next) * apart <= high && all.size() < 100; ++next)
    all.push_back(static_cast<double>(next) * apart);
  return all;
}

// Reduces a curve to at most 1000 points by averaging neighbours, so that the chart of a long run stays small.
inline std::vector<Point> thinned(const std::vector<Point>& points) {
  constexpr std::size_t kMaxPoints = 1000;
  const std::size_t group = (points.size() + kMaxPoints - 1) / kMaxPoints;
  if (group <= 1) return points;
  std::vector<Point> out;
  for (std::size_t i = 0; i < points.size(); i += group) {
    const std::size_t end = std::min(points.size(), i + group);
    double sum = 0;
    for (std::size_t k = i; k < end; ++k) sum += points[k].y;
    out.push_back({points[end - 1].x, sum / static_cast<double>(end - i)});
  }
  return out;
}

}  // namespace ddprun::svg
