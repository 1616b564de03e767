#include "trainer/tokens/bpe.hpp"

#include <array>
#include <functional>
#include <queue>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "common/base/error.hpp"
#include "common/bounded/short_quote.hpp"
#include "trainer/tokens/added_tokens.hpp"
#include "trainer/tokens/composed.hpp"
#include "trainer/tokens/utf8.hpp"
#include "trainer/tokens/words.hpp"

namespace ddprun::trainer {
namespace {

using Id = std::uint32_t;
constexpr std::size_t kMaxCachedWords = 1 << 18;  // maximum number of words in the cache that maps words to tokens

struct Merge {
  std::size_t rank = 0;
  Id into = 0;
};

class BpeVocabulary : public Vocabulary {
 public:
  explicit BpeVocabulary(const Bpe& bpe)
      : prefix_space_(bpe.prefix_space),
        keep_whole_words_(bpe.keep_whole_words),
        pattern_(bpe.pattern),
        composes_(bpe.composes) {
    for (const Bpe::Token& token : bpe.tokens) ids_.emplace(token.bytes, token.id);
    for (const auto* list : {&bpe.tokens, &bpe.added}) {
      for (const Bpe::Token& token : *list) {
        if (token.id >= bytes_.size()) bytes_.resize(std::size_t{token.id} + 1);
        bytes_[token.id] = token.bytes;
      }
    }
    for (std::size_t byte = 0; byte < of_byte_.size(); ++byte) {
      const auto found = ids_.find(std::string(1, static_cast<char>(byte)));
      if (found == ids_.end()) {
        throw UsageError("has no token for byte " + std::to_string(byte) +
                         "; expected a byte-level vocabulary with tokens for all 256 bytes");
      }
      of_byte_[byte] = found->second;
    }
    for (const auto& [first, second] : bpe.merges) {
      const Id left = id_of(first), right = id_of(second), into = id_of(first + second);
      merges_.try_emplace(key(left, right), Merge{.rank = merges_.size(), .into = into});
    }
    for (const Bpe::Token& token : bpe.added) added_.add(token.bytes, token.id);
  }

  std::int64_t size() const override { return static_cast<std::int64_t>(bytes_.size()); }

  std::string bytes_of(std::int64_t token) const override {
    const bool known = token >= 0 && token < size() && !bytes_[static_cast<std::size_t>(token)].empty();
    return known ? bytes_[static_cast<std::size_t>(token)] : std::string(kReplacementBytes);
  }

  std::vector<Id> encode(std::string_view raw) const override {
    const std::string utf8 = as_utf8(raw);
    std::string_view text = utf8;
    std::vector<Id> tokens;
    Remembered remembered;
    while (!text.empty()) {
      const AddedTokens::Found added = added_.next_in(text);
      encode_part(text.substr(0, added.begin), tokens, remembered);
      text.remove_prefix(added.begin + added.bytes);
      if (added.bytes > 0) tokens.push_back(added.id);
    }
    return tokens;
  }

 private:
  using Remembered = std::unordered_map<std::string, std::vector<Id>>;

  static std::uint64_t key(Id left, Id right) { return (std::uint64_t{left} << 32) | right; }

  Id id_of(const std::string& bytes) const {
    if (const auto found = ids_.find(bytes); found != ids_.end()) return found->second;
    throw UsageError("a merge uses or creates '" + short_quote(bytes) + "', which is not a token of the vocabulary");
  }

  void encode_part(std::string_view text, std::vector<Id>& tokens, Remembered& remembered) const {
    std::string with_space, normalized;
    if (composes_) text = normalized = composed(text);
    if (prefix_space_ && !text.empty() && text.front() != ' ') text = with_space = " " + std::string(text);
    while (!text.empty()) {
      const std::string word(text.substr(0, first_word(text, pattern_)));
      text.remove_prefix(word.size());
      auto known = remembered.find(word);
      if (known == remembered.end()) {
        if (remembered.size() == kMaxCachedWords) remembered.clear();
        known = remembered.emplace(word, tokens_of_word(word)).first;
      }
      tokens.insert(tokens.end(), known->second.begin(), known->second.end());
    }
  }

  std::vector<Id> tokens_of_word(const std::string& word) const {
    if (keep_whole_words_) {
      if (const auto found = ids_.find(word); found != ids_.end()) return {found->second};
    }
    // The tokens of the word form a linked list of parts. A merge appends a part to the part before it, and marks the appended
    // part as `gone`. The merge does not update the queue. So a queued pair may be outdated, and is compared with the current
    // parts when it leaves the queue.
    struct Part {
      Id id = 0;
      std::size_t before = 0, after = 0;
      bool gone = false;
    };
    const std::size_t end = word.size();
    std::vector<Part> parts;
    parts.reserve(end);
    for (std::size_t i = 0; i < end; ++i) {
      parts.push_back({.id = of_byte_[static_cast<unsigned char>(word[i])], .before = i == 0 ? end : i - 1, .after = i + 1});
    }
    using Waiting = std::tuple<std::size_t, std::size_t, Id>;  // a possible merge: its rank, position, and merged token
    std::priority_queue<Waiting, std::vector<Waiting>, std::greater<>> waiting;
    const auto consider = [&](std::size_t place) {
      if (place == end || parts[place].after == end) return;
      const auto merge = merges_.find(key(parts[place].id, parts[parts[place].after].id));
      if (merge != merges_.end()) waiting.emplace(merge->second.rank, place, merge->second.into);
    };
    for (std::size_t i = 0; i < end; ++i) consider(i);
    while (!waiting.empty()) {
      const auto [rank, place, into] = waiting.top();
      waiting.pop();
      Part& part = parts[place];
      if (part.gone || part.after == end) continue;
      Part& next = parts[part.after];
      const auto merge = merges_.find(key(part.id, next.id));
      if (merge == merges_.end() || merge->second.into != into) continue;
      part.id = into;
      next.gone = true;
      part.after = next.after;
      if (part.after != end) parts[part.after].before = place;
      consider(part.before);
      consider(place);
    }
    std::vector<Id> tokens;
    for (const Part& part : parts) {
      if (!part.gone) tokens.push_back(part.id);
    }
    return tokens;
  }

  std::unordered_map<std::string, Id> ids_;
  std::vector<std::string> bytes_;  // bytes of each token, indexed by its id
  std::array<Id, 256> of_byte_{};
  std::unordered_map<std::uint64_t, Merge> merges_;
  AddedTokens added_;
  bool prefix_space_;
  bool keep_whole_words_;
  WordPattern pattern_;
  bool composes_;
};

}  // namespace

std::shared_ptr<const Vocabulary> make_bpe(const Bpe& bpe) {
  return std::make_shared<BpeVocabulary>(bpe);
}

}  // namespace ddprun::trainer
