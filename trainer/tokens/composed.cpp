#include "trainer/tokens/composed.hpp"

#include <algorithm>
#include <cstddef>
#include <unordered_map>

#include "trainer/tokens/unicode_tables.hpp"
#include "trainer/tokens/utf8.hpp"

namespace ddprun::trainer {
namespace {

// Hangul syllables are composed by arithmetic (Unicode, chapter 3.12): a leading consonant, a vowel and an optional trailing
// consonant.
constexpr char32_t kSyllable = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadings = 19, kVowels = 21, kTrailings = 28, kSyllables = kLeadings * kVowels * kTrailings;

void decompose(char32_t code, std::u32string& out) {
  if (code >= kSyllable && code < kSyllable + kSyllables) {
    const char32_t index = code - kSyllable;
    out += kLeading + index / (kVowels * kTrailings);
    out += kVowel + index % (kVowels * kTrailings) / kTrailings;
    if (index % kTrailings != 0) out += kTrailing + index % kTrailings;
    return;
  }
  const auto all = decompositions();
  const auto found = std::ranges::lower_bound(all, code, {}, &Decomposition::code);
  if (found == all.end() || found->code != code) {
    out += code;
    return;
  }
  decompose(found->first, out);
  if (found->second != 0) out += found->second;
}

// Sorts each run of combining characters by their class. Characters of the same class keep their order.
void sort_combining(std::u32string& text) {
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    const auto at = [&](std::size_t place) { return text.begin() + static_cast<std::ptrdiff_t>(place); };
    std::ranges::stable_sort(at(begin), at(end), {}, combining_class);
    begin = end + 1;
  }
}

std::uint64_t pair_of(char32_t first, char32_t second) {
  return std::uint64_t{first} << 32 | second;
}

// Returns the character that two characters compose, or 0 if there is none.
char32_t composition_of(char32_t first, char32_t second) {
  static const std::unordered_map<std::uint64_t, char32_t> kPairs = [] {
    std::unordered_map<std::uint64_t, char32_t> pairs;
    const auto excluded = uncomposed_characters();
    for (const Decomposition& each : decompositions()) {
      if (each.second == 0 || std::ranges::binary_search(excluded, each.code)) continue;
      pairs.emplace(pair_of(each.first, each.second), each.code);
    }
    return pairs;
  }();
  if (first >= kLeading && first < kLeading + kLeadings && second >= kVowel && second < kVowel + kVowels) {
    return kSyllable + ((first - kLeading) * kVowels + (second - kVowel)) * kTrailings;
  }
  const bool open = first >= kSyllable && first < kSyllable + kSyllables && (first - kSyllable) % kTrailings == 0;
  if (open && second > kTrailing && second < kTrailing + kTrailings) return first + (second - kTrailing);
  const auto found = kPairs.find(pair_of(first, second));
  return found == kPairs.end() ? 0 : found->second;
}

std::u32string compose(const std::u32string& text) {
  constexpr int kNone = 256;  // means that no letter precedes; greater than every combining class
  std::u32string out;
  std::size_t letter = 0;  // position in `out` of the last character whose combining class is 0
  int last = kNone;        // combining class of the last character in `out`
  for (const char32_t code : text) {
    const int now = combining_class(code);
    const char32_t composition = last == kNone || (last != 0 && last >= now) ? 0 : composition_of(out[letter], code);
    if (composition != 0) {
      out[letter] = composition;
      continue;
    }
    if (now == 0) letter = out.size();
    if (now == 0 || last != kNone) last = now;
    out += code;
  }
  return out;
}

void append_utf8(std::string& out, char32_t code) {
  const auto byte = [&out](char32_t value) { out += static_cast<char>(static_cast<unsigned char>(value)); };
  if (code < 0x80) return byte(code);
  if (code < 0x800) {
    byte(0xC0 | code >> 6);
  } else {
    if (code < 0x10000) {
      byte(0xE0 | code >> 12);
    } else {
      byte(0xF0 | code >> 18);
      byte(0x80 | (code >> 12 & 0x3F));
    }
    byte(0x80 | (code >> 6 & 0x3F));
  }
  byte(0x80 | (code & 0x3F));
}

}  // namespace

std::string composed(std::string_view text) {
  // Characters below U+0300 are never changed. Their UTF-8 starts with a byte below 0xCC.
  const auto may_change = [](char byte) { return static_cast<unsigned char>(byte) >= 0xCC; };
  if (std::ranges::none_of(text, may_change)) return std::string(text);
  std::u32string decomposed;
  for (std::string_view rest = text; !rest.empty();) {
    const Character next = first_character(rest);
    decompose(next.code, decomposed);
    rest.remove_prefix(next.bytes);
  }
  sort_combining(decomposed);
  std::string out;
  for (const char32_t code : compose(decomposed)) append_utf8(out, code);
  return out;
}

}  // namespace ddprun::trainer
