#include "trainer/tokens/vocabulary_file.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "common/base/error.hpp"
#include "common/base/json_problem.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/bounded/short_quote.hpp"
#include "trainer/reading/mapped_file.hpp"
#include "trainer/tokens/bpe.hpp"
#include "trainer/tokens/special_tokens.hpp"
#include "trainer/tokens/utf8.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using JsonValue = nlohmann::json;

// Limits on the size of a vocabulary. A file that exceeds a limit is refused.
constexpr std::size_t kMaxFileBytes = std::size_t{1} << 27;
constexpr JsonLimits kJsonLimits{.depth = 32, .entries = "tokens"};
constexpr std::size_t kMaxAdded = std::size_t{1} << 20;
constexpr std::size_t kMaxAddedBytes = 256;  // maximum length of an added token
// Limit on gaps between ids. An id needs memory even if no token has it, because tokens are stored in an array by id.
constexpr std::size_t kMaxGaps = 65'536;

// Inverse of GPT-2's bytes_to_unicode(). Vocabulary files write each unprintable byte as a character from U+0100 on.
std::map<char32_t, char> bytes_by_character() {
  std::map<char32_t, char> bytes;
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    bytes[is_printable ? byte : next++] = static_cast<char>(byte);
  }
  return bytes;
}

// Returns the bytes that a token in a vocabulary file represents. If the token has a character that does not represent a byte,
// returns the token unchanged.
std::string bytes_of_spelling(std::string_view spelling) {
  static const std::map<char32_t, char> kBytes = bytes_by_character();
  std::string bytes;
  for (std::string_view rest = spelling; !rest.empty();) {
    const Character character = first_character(rest);
    const auto found = kBytes.find(character.code);
    if (found == kBytes.end()) return std::string(spelling);
    bytes += found->second;
    rest.remove_prefix(character.bytes);
  }
  return bytes;
}

JsonValue read_json(const fs::path& file) {
  const MappedFile mapped(file);
  if (mapped.bytes().size() > kMaxFileBytes) {
    throw UsageError("has " + std::to_string(mapped.bytes().size()) + " bytes; a vocabulary has at most " +
                     std::to_string(kMaxFileBytes));
  }
  require_json_within(mapped.bytes(), kJsonLimits);
  try {
    return JsonValue::parse(mapped.bytes());
  } catch (const JsonValue::exception& error) {
    throw UsageError("is not valid JSON (" + json_problem(error, mapped.bytes()) + ")");
  }
}

void require(bool holds, const std::string& problem) {
  if (!holds) throw UsageError(problem);
}

std::uint32_t id_in(const JsonValue& id, const std::string& token) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::uint32_t>::max();
  require(id.is_number_unsigned() && id.get<std::uint64_t>() <= kMax, "the id of token '" + short_quote(token) + "' is " +
                                                                          short_quote(id.dump()) + "; expected one from 0 to " +
                                                                          std::to_string(kMax));
  return id.get<std::uint32_t>();
}

void require_numbers_without_gaps(const Bpe& bpe) {
  const std::size_t tokens = bpe.tokens.size() + bpe.added.size(), most = 2 * tokens + kMaxGaps;
  for (const auto* list : {&bpe.tokens, &bpe.added}) {
    for (const Bpe::Token& token : *list) {
      require(token.id < most, "the id of token '" + short_quote(token.bytes) + "' is " + std::to_string(token.id) + "; with " +
                                   std::to_string(tokens) + " tokens it must be below " + std::to_string(most));
    }
  }
}

void require_added_within(const std::vector<Bpe::Token>& added) {
  require(added.size() <= kMaxAdded, "has more than " + std::to_string(kMaxAdded) + " added tokens");
  for (const Bpe::Token& token : added) {
    require(token.bytes.size() <= kMaxAddedBytes,
            "added token '" + short_quote(token.bytes) + "' is longer than " + std::to_string(kMaxAddedBytes) + " bytes");
  }
}

std::vector<Bpe::Token> tokens_listed(const JsonValue& vocabulary) {
  require(vocabulary.is_object(), "expected an object that maps tokens to their ids");
  std::vector<Bpe::Token> tokens;
  for (const auto& [spelling, id] : vocabulary.items()) tokens.push_back({bytes_of_spelling(spelling), id_in(id, spelling)});
  return tokens;
}

// Parses the text of a merge, such as "left right".
std::pair<std::string, std::string> merge_in(std::string_view text) {
  const std::size_t space = text.find(' ');
  const bool two = space != std::string_view::npos && space > 0 && space + 1 < text.size() &&
                   text.find(' ', space + 1) == std::string_view::npos;
  require(two, "expected a merge of two tokens separated by a space, found '" + short_quote(text) + "'");
  return {bytes_of_spelling(text.substr(0, space)), bytes_of_spelling(text.substr(space + 1))};
}

std::vector<std::pair<std::string, std::string>> merges_in_text(const fs::path& file) {
  const MappedFile mapped(file);
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::string_view rest = mapped.bytes(); !rest.empty();) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && !line.starts_with("#version")) merges.push_back(merge_in(line));
  }
  return merges;
}

std::vector<std::pair<std::string, std::string>> merges_in(const JsonValue& list) {
  require(list.is_array(), "expected an array at model.merges");
  std::vector<std::pair<std::string, std::string>> merges;
  for (const JsonValue& merge : list) {
    if (merge.is_string()) {
      merges.push_back(merge_in(merge.get_ref<const std::string&>()));
      continue;
    }
    require(merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string(),
            "expected a merge of two tokens, found " + short_quote(merge.dump()));
    merges.emplace_back(bytes_of_spelling(merge[0].get_ref<const std::string&>()),
                        bytes_of_spelling(merge[1].get_ref<const std::string&>()));
  }
  return merges;
}

// Returns the value at a JSON pointer, or null if it does not exist.
JsonValue value_at(const JsonValue& json, const std::string& pointer) {
  const JsonValue::json_pointer place(pointer);
  return json.contains(place) ? json.at(place) : JsonValue();
}

bool is_unset(const JsonValue& value) {
  return value.is_null() || value == false || value == "" || value == 0.0;
}

std::vector<Bpe::Token> added_in(const JsonValue& json) {
  std::vector<Bpe::Token> added;
  const JsonValue list = value_at(json, "/added_tokens");
  require(list.is_null() || list.is_array(), "expected an array at added_tokens");
  for (const JsonValue& token : list) {
    const JsonValue content = value_at(token, "/content");
    require(content.is_string() && content != "",
            "expected a string at added_tokens[].content, found " + short_quote(content.dump()));
    const std::string text = content.get<std::string>();
    for (const char* trait : {"lstrip", "rstrip", "single_word"}) {
      require(is_unset(value_at(token, std::string("/") + trait)),
              "added token '" + short_quote(text) + "' has \"" + trait + "\": true, which is not supported");
    }
    added.push_back({text, id_in(value_at(token, "/id"), text)});
  }
  return added;
}

constexpr const char* kSupported = "; only byte-level BPE with the word pattern of GPT-2, Llama 3 or Qwen2 is supported";

// Reads the pre-tokenizer, which splits a text into words: ByteLevel for GPT-2's pattern, or a Split with another pattern
// followed by ByteLevel.
void read_words(const JsonValue& json, Bpe& bpe) {
  const JsonValue words = value_at(json, "/pre_tokenizer");
  JsonValue bytes = words;
  if (value_at(words, "/type") == "Sequence" && value_at(words, "/pretokenizers/1").is_object()) {
    const JsonValue split = value_at(words, "/pretokenizers/0"), pattern = value_at(split, "/pattern/Regex");
    bytes = value_at(words, "/pretokenizers/1");
    require(value_at(words, "/pretokenizers").size() == 2 && value_at(split, "/type") == "Split" &&
                (pattern == kLlama3Pattern || pattern == kQwen2Pattern) && value_at(split, "/behavior") == "Isolated" &&
                is_unset(value_at(split, "/invert")) && value_at(bytes, "/use_regex") == false,
            "sets pre_tokenizer to " + short_quote(words.dump()) + kSupported);
    bpe.pattern = pattern == kLlama3Pattern ? WordPattern::kLlama3 : WordPattern::kQwen2;
    require(is_unset(value_at(bytes, "/add_prefix_space")),
            "sets add_prefix_space to true in pre_tokenizer, after a Split step" + std::string(kSupported));
  } else {
    require(value_at(bytes, "/use_regex") != false, "sets use_regex to false in pre_tokenizer" + std::string(kSupported));
  }
  require(value_at(bytes, "/type") == "ByteLevel",
          "expected {\"type\": \"ByteLevel\"} at pre_tokenizer, found " + short_quote(words.dump()) + kSupported);
  bpe.prefix_space = value_at(bytes, "/add_prefix_space") == true;
}

// Converts a tokenizer.json. Applies each setting that affects the tokens of a text. Throws UsageError for a setting that this
// implementation does not support.
Bpe bpe_in(const JsonValue& json) {
  require(json.is_object(), "expected an object");
  const auto require_unset = [&json](const std::string& pointer) {
    require(is_unset(value_at(json, pointer)),
            "sets " + pointer + " to " + short_quote(value_at(json, pointer).dump()) + kSupported);
  };
  require(value_at(json, "/model/type") == "BPE" ||
              (value_at(json, "/model/type").is_null() && value_at(json, "/model/merges").is_array()),
          "expected \"BPE\" at model.type, found " + short_quote(value_at(json, "/model/type").dump()));
  const bool composes = value_at(json, "/normalizer/type") == "NFC";
  if (!composes) require_unset("/normalizer");
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix", "byte_fallback"}) {
    require_unset(std::string("/model/") + key);
  }
  Bpe bpe{.tokens = tokens_listed(value_at(json, "/model/vocab")),
          .merges = merges_in(value_at(json, "/model/merges")),
          .added = added_in(json),
          .keep_whole_words = value_at(json, "/model/ignore_merges") == true,
          .composes = composes};
  read_words(json, bpe);
  return bpe;
}

std::shared_ptr<const Vocabulary> made_of(const fs::path& file, const auto& read) {
  try {
    const Bpe bpe = read();
    require_numbers_without_gaps(bpe);
    require_added_within(bpe.added);
    return make_bpe(bpe);
  } catch (const UsageError& problem) {
    const std::string text = problem.what();
    const bool names_a_file =
        text.starts_with(file.string()) || (file.has_parent_path() && text.starts_with((file.parent_path() / "").string()));
    throw UsageError(names_a_file ? text : file.string() + ": " + text);
  }
}

}  // namespace

std::shared_ptr<const Vocabulary> read_vocabulary(const fs::path& path) {
  std::error_code none;
  const bool folder = fs::is_directory(path, none);
  const fs::path file = folder ? path / "tokenizer.json" : path;
  if (!folder || fs::exists(file, none)) return made_of(file, [&] { return bpe_in(read_json(file)); });
  const fs::path vocabulary = path / "vocab.json", merges = path / "merges.txt";
  for (const fs::path& needed : {vocabulary, merges}) {
    if (fs::exists(needed, none)) continue;
    throw UsageError(path.string() + ": has no " + needed.filename().string() +
                     "; expected a folder with tokenizer.json, or with vocab.json and merges.txt");
  }
  return made_of(vocabulary, [&] {
    const JsonValue numbers = read_json(vocabulary);
    Bpe bpe{.tokens = tokens_listed(numbers), .merges = merges_in_text(merges), .added = {}};
    add_special_tokens(bpe, numbers, path);
    return bpe;
  });
}

}  // namespace ddprun::trainer
