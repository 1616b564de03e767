// Finds special tokens such as "<|endoftext|>" in a text before it is split into words. If several tokens match at one
// position, the longest token is used, as in Hugging Face's tokenizers. The tokens are stored in a trie of bytes, so the time
// of a search does not depend on the number of tokens. The time is at most proportional to the length of the text times the
// length of the longest token.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ddprun::trainer {

class AddedTokens {
 public:
  struct Found {
    std::size_t begin = 0;  // offset of the token; the length of the text if no token was found
    std::size_t bytes = 0;
    std::uint32_t id = 0;
  };

  // Adds a token. If a token with the same text exists, its id does not change.
  void add(std::string_view text, std::uint32_t id);
  // Returns the first special token in `text`.
  Found next_in(std::string_view text) const;

 private:
  struct Node {
    std::uint32_t id = 0;
    bool ends = false;
  };
  static std::uint64_t key(std::uint32_t node, char byte) {
    return std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
  }
  Found longest_at(std::string_view text) const;

  std::vector<Node> nodes_{1};
  std::unordered_map<std::uint64_t, std::uint32_t> next_;
  std::array<bool, 256> begins_{};
};

inline void AddedTokens::add(std::string_view text, std::uint32_t id) {
  if (text.empty()) return;
  std::uint32_t node = 0;
  for (const char byte : text) {
    const auto [place, is_new] = next_.try_emplace(key(node, byte), static_cast<std::uint32_t>(nodes_.size()));
    if (is_new) nodes_.emplace_back();
    node = place->second;
  }
  begins_[static_cast<unsigned char>(text.front())] = true;
  if (!nodes_[node].ends) nodes_[node] = {.id = id, .ends = true};
}

inline AddedTokens::Found AddedTokens::longest_at(std::string_view text) const {
  Found found;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto next = next_.find(key(node, text[i]));
    if (next == next_.end()) break;
    node = next->second;
    if (nodes_[node].ends) found = {.begin = 0, .bytes = i + 1, .id = nodes_[node].id};
  }
  return found;
}

inline AddedTokens::Found AddedTokens::next_in(std::string_view text) const {
  for (std::size_t begin = 0; begin < text.size(); ++begin) {
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    Found found = longest_at(text.substr(begin));
    found.begin = begin;
    if (found.bytes > 0) return found;
  }
  return {.begin = text.size()};
}

}  // namespace ddprun::trainer
