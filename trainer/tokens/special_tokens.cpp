#include "trainer/tokens/special_tokens.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_set>

#include "common/base/error.hpp"
#include "common/bounded/bounded_file.hpp"
#include "common/bounded/json_limits.hpp"
#include "common/bounded/short_quote.hpp"

namespace ddprun::trainer {
namespace {

namespace fs = std::filesystem;
using TokenJson = nlohmann::json;

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr std::array kKeysOfTokens{"bos_token",           "eos_token", "unk_token",  "sep_token",
                                   "pad_token",           "cls_token", "mask_token", "additional_special_tokens",
                                   "extra_special_tokens"};
// The tokenizer classes of the library transformers that split a text into words by GPT-2's pattern. An empty name means the
// default class.
constexpr std::array<std::string_view, 10> kGpt2TokenizerClasses{"",
                                                                 "GPT2Tokenizer",
                                                                 "RobertaTokenizer",
                                                                 "BartTokenizer",
                                                                 "LEDTokenizer",
                                                                 "LongformerTokenizer",
                                                                 "BlenderbotTokenizer",
                                                                 "PreTrainedTokenizer",
                                                                 "TokenizersBackend",
                                                                 "CodeGenTokenizer"};

// Reads a JSON object from the file. Returns an empty object if the file does not exist.
TokenJson read_if_there(const fs::path& file) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 26;
  std::error_code unknown;
  if (!fs::exists(file, unknown)) return TokenJson::object();
  const std::string text = read_bounded(file, kMaxBytes, "a list of special tokens");
  try {
    TokenJson json = parse_json_within(text, {.depth = 16, .values = 1 << 20});
    if (!json.is_object()) throw UsageError("is not a JSON object");
    return json;
  } catch (const UsageError& problem) {
    throw UsageError(file.string() + ": " + problem.what());
  }
}

class SpecialTokens {
 public:
  // `numbers` maps the text of a token to its id. `file` is used only in error messages.
  SpecialTokens(const TokenJson& numbers, const fs::path& file) : numbers_(numbers), file_(file) {}

  // Adds the tokens in `named`, which is a string, an object with the string "content", or a list or object of such values. If
  // `id` is not given, the constructor's `numbers` must contain the token's id.
  void add(const TokenJson& named, std::optional<std::uint32_t> id = {}) {
    if (named.is_string()) return add_text(named.get<std::string>(), id);
    if (named.is_array()) {
      for (const TokenJson& one : named) add(one);
    } else if (named.is_object() && named.contains("content")) {
      add_object(named, id);
    } else if (named.is_object()) {
      for (const TokenJson& one : named) add(one);
    }
  }

  std::map<std::string, std::uint32_t> tokens;

 private:
  void add_object(const TokenJson& object, std::optional<std::uint32_t> id) {
    if (!object["content"].is_string()) throw UsageError(file_.string() + ": has a token without a string at \"content\"");
    const std::string text = object["content"].get<std::string>();
    for (const char* trait : {"lstrip", "rstrip", "single_word"}) {
      if (const auto found = object.find(trait); found == object.end() || *found == false) continue;
      throw UsageError(file_.string() + ": token '" + short_quote(text) + "' has \"" + trait +
                       "\": true, which is not supported; expected false");
    }
    add_text(text, id);
  }

  void add_text(const std::string& text, std::optional<std::uint32_t> id) {
    if (text.empty()) return;
    if (!id) {
      const auto number = numbers_.find(text);
      if (number == numbers_.end() || !number->is_number_unsigned() ||
          number->get<std::uint64_t>() > std::numeric_limits<std::uint32_t>::max()) {
        throw UsageError(file_.string() + ": has the special token '" + short_quote(text) +
                         "', whose id is in neither vocab.json nor added_tokens.json. Add it there, or save a tokenizer.json");
      }
      id = number->get<std::uint32_t>();
    }
    tokens[text] = *id;
  }

  const TokenJson& numbers_;
  const fs::path& file_;
};

// Sets the word pattern of the tokenizer class.
void read_class(const TokenJson& config, const fs::path& file, Bpe& bpe) {
  const auto named = config.find("tokenizer_class");
  if (named == config.end() || !named->is_string()) return;
  const std::string whole = named->get<std::string>();
  std::string_view name = whole;
  if (name.ends_with("Fast")) name.remove_suffix(4);
  if (std::ranges::find(kGpt2TokenizerClasses, name) != kGpt2TokenizerClasses.end()) return;
  if (name == "Qwen2Tokenizer") {
    bpe.pattern = WordPattern::kQwen2;
    bpe.composes = true;
    return;
  }
  throw UsageError(file.string() + ": has the tokenizer_class '" + short_quote(whole) +
                   "'; expected GPT2Tokenizer, Qwen2Tokenizer or a tokenizer with the same word pattern. Tokenize the text in "
                   "Python, or save a "
                   "tokenizer.json");
}

// Adds each entry of the vocabulary that is in brackets, such as "<pad>" or "[CLS]", and is not the result of a merge. This is
// used if the folder has no file that lists the special tokens.
void add_entries_in_brackets(Bpe& bpe, const TokenJson& vocabulary, std::map<std::string, std::uint32_t>& tokens) {
  std::unordered_set<std::string> made;
  for (const auto& [left, right] : bpe.merges) made.insert(left + right);
  for (const auto& [text, id] : vocabulary.items()) {
    const bool brackets =
        text.size() > 2 && ((text.front() == '<' && text.back() == '>') || (text.front() == '[' && text.back() == ']'));
    if (brackets && id.is_number_unsigned() && !made.contains(text)) tokens[text] = id.get<std::uint32_t>();
  }
}

}  // namespace

void add_special_tokens(Bpe& bpe, const TokenJson& vocabulary, const fs::path& folder) {
  const fs::path map_file = folder / "special_tokens_map.json", config_file = folder / "tokenizer_config.json",
                 added_file = folder / "added_tokens.json";
  const TokenJson map = read_if_there(map_file), config = read_if_there(config_file), added = read_if_there(added_file);
  read_class(config, config_file, bpe);
  bpe.prefix_space = config.value("add_prefix_space", TokenJson(false)) == true;

  TokenJson numbers = vocabulary;
  numbers.update(added);
  std::map<std::string, std::uint32_t> tokens;
  if (const auto end = vocabulary.find(kEndOfText); end != vocabulary.end() && end->is_number_unsigned()) {
    tokens[kEndOfText] = end->get<std::uint32_t>();
  }
  if (map.empty() && config.empty() && added.empty()) {
    add_entries_in_brackets(bpe, vocabulary, tokens);
  } else {
    SpecialTokens of_added(numbers, added_file), of_config(numbers, config_file), of_map(numbers, map_file);
    for (const auto& [text, id] : added.items()) of_added.add(TokenJson(text));
    const TokenJson by_number = config.value("added_tokens_decoder", TokenJson::object());
    for (const auto& [id, token] : by_number.items()) {
      const bool is_number = !id.empty() && id.size() < 10 && id.find_first_not_of("0123456789") == std::string::npos;
      if (!is_number)
        throw UsageError(config_file.string() + ": has '" + short_quote(id) + "' in added_tokens_decoder; expected a number");
      of_config.add(token, static_cast<std::uint32_t>(std::stoul(id)));
      if (token.is_object() && token.contains("content")) numbers[token["content"].get<std::string>()] = std::stoul(id);
    }
    for (const char* key : kKeysOfTokens) {
      if (const auto found = config.find(key); found != config.end()) of_config.add(*found);
    }
    of_map.add(map);
    for (const SpecialTokens* one : {&of_added, &of_config, &of_map}) tokens.insert(one->tokens.begin(), one->tokens.end());
  }
  for (const auto& [text, id] : tokens) bpe.added.push_back({text, id});
}

}  // namespace ddprun::trainer
