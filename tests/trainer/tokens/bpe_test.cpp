// Compares byte-level BPE with the library tokenizers of Hugging Face (golden.json), and tests vocabulary files that are
// refused.
#include "trainer/tokens/bpe.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/repository.hpp"
#include "trainer/tokens/utf8.hpp"
#include "trainer/tokens/vocabulary_file.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;
using GoldenJson = nlohmann::json;

const GoldenJson& golden_tokens() {
  static const GoldenJson content = [] {
    std::ifstream file(test::repository() / "tests/trainer/tokens/golden.json");
    return GoldenJson::parse(file);
  }();
  return content;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string decoded(const Vocabulary& vocabulary, const std::vector<std::uint32_t>& tokens) {
  std::string bytes;
  for (const std::uint32_t token : tokens) bytes += vocabulary.bytes_of(token);
  return bytes;
}

void write_two_files(const TemporaryFolder& folder) {
  write_text(folder / "vocab.json", golden_tokens()["vocabulary"].dump());
  write_text(folder / "merges.txt", golden_tokens()["merges"].get<std::string>());
}

TEST(Bpe, MatchesHuggingFaceWithTwoFiles) {
  TemporaryFolder folder;
  write_two_files(folder);
  const auto vocabulary = read_vocabulary(folder.path());
  EXPECT_EQ(vocabulary->size(), 420);
  for (const GoldenJson& entry : golden_tokens()["texts"]) {
    const std::string text = from_hex(entry["text"]);
    const auto tokens = vocabulary->encode(text);
    EXPECT_EQ(GoldenJson(tokens), entry["plain"]) << entry["text"];
    EXPECT_EQ(decoded(*vocabulary, tokens), as_utf8(text)) << "all that is UTF-8 comes back";
  }
}

TEST(Bpe, MatchesHuggingFaceWithATokenizerJson) {
  TemporaryFolder folder;
  write_text(folder / "tokenizer.json", golden_tokens()["tokenizer"].dump());
  for (const auto& path : {folder.path(), folder / "tokenizer.json"}) {
    const auto vocabulary = read_vocabulary(path);
    EXPECT_EQ(vocabulary->size(), 422);
    EXPECT_EQ(vocabulary->bytes_of(420), "<|endoftext|>");
    for (const GoldenJson& entry : golden_tokens()["texts"]) {
      EXPECT_EQ(GoldenJson(vocabulary->encode(from_hex(entry["text"]))), entry["with_space"]) << entry["text"];
    }
  }
}

// Returns a tokenizer.json with the pre-tokenizer and normalizer of Llama 3 or Qwen2.
GoldenJson tokenizer_with_words(const std::string& name) {
  GoldenJson json = golden_tokens()["tokenizer"];
  json.update(golden_tokens()["other_words"][name]);
  json["model"]["ignore_merges"] = name == "llama3";
  return json;
}

TEST(Bpe, MatchesHuggingFaceWithTheWordsOfOtherModels) {
  for (const std::string name : {"llama3", "qwen2"}) {
    TemporaryFolder folder;
    write_text(folder / "tokenizer.json", tokenizer_with_words(name).dump());
    const auto vocabulary = read_vocabulary(folder.path());
    for (const GoldenJson& entry : golden_tokens()["texts"]) {
      EXPECT_EQ(GoldenJson(vocabulary->encode(from_hex(entry["text"]))), entry[name]) << name << " " << entry["text"];
    }
  }
}

TEST(Bpe, OtherWordPatternsAreRefused) {
  TemporaryFolder folder;
  for (const auto& [pointer, value] : {std::pair<const char*, GoldenJson>{"/pretokenizers/0/pattern/Regex", "\\p{N}"},
                                       {"/pretokenizers/0/behavior", "Removed"},
                                       {"/pretokenizers/0/invert", true},
                                       {"/pretokenizers/1/use_regex", true},
                                       {"/pretokenizers/1/add_prefix_space", true},
                                       {"/pretokenizers/1/type", "Whitespace"}}) {
    GoldenJson json = tokenizer_with_words("llama3");
    json["pre_tokenizer"][GoldenJson::json_pointer(pointer)] = value;
    write_text(folder / "tokenizer.json", json.dump());
    EXPECT_THROW(read_vocabulary(folder.path()), UsageError) << pointer;
  }
}

TEST(Bpe, AnUnknownTokenIsAReplacementCharacter) {
  TemporaryFolder folder;
  write_two_files(folder);
  const auto vocabulary = read_vocabulary(folder.path());
  for (const std::int64_t token : {-1, 420, 1'000'000}) EXPECT_EQ(vocabulary->bytes_of(token), kReplacementBytes);
}

TEST(Bpe, AWordThatIsATokenMayBeKept) {
  Bpe bpe;
  for (std::uint32_t byte = 0; byte < 256; ++byte) bpe.tokens.push_back({std::string(1, static_cast<char>(byte)), byte});
  bpe.tokens.push_back({"abc", 256});
  EXPECT_EQ(make_bpe(bpe)->encode("abc"), (std::vector<std::uint32_t>{'a', 'b', 'c'}));
  bpe.keep_whole_words = true;
  EXPECT_EQ(make_bpe(bpe)->encode("abc"), std::vector<std::uint32_t>{256});
}

// Applies `change` to a tokenizer.json, and returns the error message for it.
std::string refusal_of_tokenizer(const std::function<void(GoldenJson&)>& change) {
  TemporaryFolder folder;
  GoldenJson json = golden_tokens()["tokenizer"];
  change(json);
  write_text(folder / "tokenizer.json", json.dump());
  try {
    read_vocabulary(folder.path());
  } catch (const UsageError& error) {
    const std::string text = error.what();
    return text.substr(text.find("tokenizer.json") + 16);
  }
  return "";
}

TEST(VocabularyFile, UnsupportedSettingsAreRefused) {
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson&) {}), "");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json["model"]["type"] = "Unigram"; }),
            "expected \"BPE\" at model.type, found \"Unigram\"");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) {
              json["normalizer"] = {{"type", "NFKC"}};
            }),
            "sets /normalizer to {\"type\":\"NFKC\"}; only byte-level BPE with the word pattern of GPT-2, Llama 3 or Qwen2 is "
            "supported");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json["model"]["dropout"] = 0.1; }),
            "sets /model/dropout to 0.1; only byte-level BPE with the word pattern of GPT-2, Llama 3 or Qwen2 is supported");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) {
              json["pre_tokenizer"] = {{"type", "Whitespace"}};
            }),
            "expected {\"type\": \"ByteLevel\"} at pre_tokenizer, found {\"type\":\"Whitespace\"}; only byte-level BPE with "
            "the word pattern of GPT-2, Llama 3 or Qwen2 is supported");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json["added_tokens"][0]["lstrip"] = true; }),
            "added token '<|endoftext|>' has \"lstrip\": true, which is not supported");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json["model"]["vocab"].erase("a"); }),
            "has no token for byte 97; expected a byte-level vocabulary with tokens for all 256 bytes");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) {
              json["model"]["merges"].push_back({"q", "q"});
            }),
            "a merge uses or creates 'qq', which is not a token of the vocabulary");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json["model"]["merges"].push_back({"q"}); }),
            "expected a merge of two tokens, found [\"q\"]");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json["model"]["vocab"]["a"] = -1; }),
            "the id of token 'a' is -1; expected one from 0 to 4294967295");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json = 3; }), "expected an object");
}

TEST(VocabularyFile, LimitsAreNamed) {
  // An array with an entry for each id would take three gigabytes, so a large gap between ids is refused.
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json["model"]["vocab"]["ab"] = 99'999'999; }).substr(0, 60),
            "the id of token 'ab' is 99999999; with 423 tokens it must be");
  EXPECT_EQ(refusal_of_tokenizer([](GoldenJson& json) { json["added_tokens"][0]["content"] = std::string(257, 'a'); }),
            "added token '" + std::string(100, 'a') + "... (257 bytes)' is longer than 256 bytes");
  EXPECT_EQ(refusal_of_tokenizer(
                [](GoldenJson& json) { json["normalizer"] = GoldenJson::parse(std::string(40, '[') + std::string(40, ']')); }),
            "is nested deeper than 32 levels");
  const std::string text = refusal_of_tokenizer([](GoldenJson& json) { json["normalizer"] = std::string(100'000, 'n'); });
  EXPECT_LT(text.size(), 250U) << text.substr(0, 300);
}

// Regression: an earlier version compared each position of the text with each added token. So a text of 240 kB with 20,000
// added tokens took half a minute.
TEST(Bpe, ManyAddedTokensAreFoundInLinearTime) {
  Bpe bpe;
  for (std::uint32_t byte = 0; byte < 256; ++byte) bpe.tokens.push_back({std::string(1, static_cast<char>(byte)), byte});
  for (std::uint32_t i = 0; i < 200'000; ++i) bpe.added.push_back({"<" + std::to_string(i) + ">", 256 + i});
  bpe.added.push_back({"<1", 300'000});
  std::string text;
  std::vector<std::uint32_t> expected;
  for (std::uint32_t i = 0; i < 200'000; ++i) {
    text += "x<" + std::to_string(i) + ">";
    expected.insert(expected.end(), {'x', 256 + i});
  }
  EXPECT_EQ(make_bpe(bpe)->encode(text), expected) << "the longest one is taken";
  EXPECT_EQ(make_bpe(bpe)->encode("<<1<"), (std::vector<std::uint32_t>{'<', 300'000, '<'}));
}

class TwoFiles : public testing::Test {
 protected:
  TwoFiles() { write_two_files(folder_); }

  void assign_ids(const std::vector<std::string>& tokens) {
    GoldenJson vocabulary = golden_tokens()["vocabulary"];
    for (const std::string& token : tokens) vocabulary[token] = vocabulary.size();
    write_text(folder_ / "vocab.json", vocabulary.dump());
  }
  std::vector<std::uint32_t> tokens_of(const std::string& text) const { return read_vocabulary(folder_.path())->encode(text); }
  std::string refusal() const {
    try {
      read_vocabulary(folder_.path());
    } catch (const UsageError& error) {
      const std::string text = error.what(), folder = folder_.path().string() + "/";
      return text.starts_with(folder) ? text.substr(folder.size()) : text;
    }
    return "";
  }

  TemporaryFolder folder_;
};

// transformers.GPT2Tokenizer always finds "<|endoftext|>". The trainers of the tokenizers library write special tokens as
// vocabulary entries that no merge produces.
TEST_F(TwoFiles, SpecialTokensAreThoseWithoutAMerge) {
  assign_ids({"<|endoftext|>", "[PAD]", "madeupword"});
  EXPECT_EQ(tokens_of("<|endoftext|>[PAD]<|endoftext|>"), (std::vector<std::uint32_t>{420, 421, 420}));
  EXPECT_GT(tokens_of("madeupword").size(), 1U);
  EXPECT_GT(tokens_of("<|end|>").size(), 1U);
  EXPECT_EQ(read_vocabulary(folder_.path())->bytes_of(420), "<|endoftext|>");
}

TEST_F(TwoFiles, SpecialTokensComeFromNeighbouringFiles) {
  assign_ids({"<|endoftext|>", "[PAD]", "<s>", "<x>", "<y>"});
  write_text(folder_ / "special_tokens_map.json",
             R"({"pad_token": {"content": "[PAD]", "lstrip": false}, "additional_special_tokens": ["<x>"]})");
  EXPECT_EQ(tokens_of("<|endoftext|>[PAD]<x>"), (std::vector<std::uint32_t>{420, 421, 423}));
  EXPECT_GT(tokens_of("<s>").size(), 1U) << "none of the files names it";
  write_text(folder_ / "tokenizer_config.json",
             R"({"tokenizer_class": "GPT2TokenizerFast", "add_prefix_space": true, "bos_token": "<s>",
                 "added_tokens_decoder": {"424": {"content": "<y>", "lstrip": false}, "430": {"content": "<new>"}}})");
  write_text(folder_ / "added_tokens.json", R"({"<later>": 431})");
  EXPECT_EQ(tokens_of("<s><y><new><later>"), (std::vector<std::uint32_t>{422, 424, 430, 431}));
  EXPECT_EQ(tokens_of("a"), tokens_of(" a")) << "a space is put before the text";
}

TEST_F(TwoFiles, InvalidSpecialTokensAreRefused) {
  write_text(folder_ / "special_tokens_map.json", R"({"pad_token": "[PAD]"})");
  EXPECT_EQ(refusal(),
            "special_tokens_map.json: has the special token '[PAD]', whose id is in neither vocab.json nor added_tokens.json. "
            "Add it there, or save a tokenizer.json");
  write_text(folder_ / "special_tokens_map.json", R"({"mask_token": {"content": "a", "lstrip": true}})");
  EXPECT_EQ(refusal(), "special_tokens_map.json: token 'a' has \"lstrip\": true, which is not supported; expected false");
  write_text(folder_ / "special_tokens_map.json", "{");
  EXPECT_EQ(refusal(), "special_tokens_map.json: is not valid JSON (it ends too early, after 1 bytes)");
  std::filesystem::remove(folder_ / "special_tokens_map.json");
  write_text(folder_ / "tokenizer_config.json", R"({"tokenizer_class": "LlamaTokenizer"})");
  EXPECT_TRUE(refusal().starts_with("tokenizer_config.json: has the tokenizer_class 'LlamaTokenizer'; expected GPT2Tokenizer"))
      << refusal();
}

TEST_F(TwoFiles, TheTokenizerClassOfQwenHasItsWords) {
  write_text(folder_ / "tokenizer_config.json", R"({"tokenizer_class": "Qwen2Tokenizer"})");
  EXPECT_EQ(tokens_of("1234 e\u0301"), tokens_of("1234 \u00e9"));
  for (const GoldenJson& entry : golden_tokens()["texts"]) {
    const std::string text = from_hex(entry["text"]);
    if (text.find("<|") != std::string::npos) continue;
    EXPECT_EQ(GoldenJson(tokens_of(text)), entry["qwen2"]) << entry["text"];
  }
}

TEST(VocabularyFile, InvalidFilesAreRefused) {
  TemporaryFolder folder;
  const auto refusal = [&folder]() -> std::string {
    try {
      read_vocabulary(folder.path());
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(), folder.path().string() +
                           ": has no vocab.json; expected a folder with tokenizer.json, or with vocab.json and merges.txt");
  write_two_files(folder);
  write_text(folder / "merges.txt", "#version: 0.2\na b c\n");
  EXPECT_EQ(refusal(),
            (folder / "vocab.json").string() + ": expected a merge of two tokens separated by a space, found 'a b c'");
  write_text(folder / "vocab.json", "{\"a\": ");
  EXPECT_EQ(refusal(), (folder / "vocab.json").string() + ": is not valid JSON (it ends too early, after 6 bytes)");
  write_text(folder / "vocab.json", "{\"a\": 1e999}");
  EXPECT_EQ(refusal(), (folder / "vocab.json").string() +
                           ": is not valid JSON (a number in it is too large: expected at most about 1.8e308)");
  EXPECT_THROW(read_vocabulary(folder / "none.json"), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
