// Tests token files: the formats that are read, and the files that are refused.
#include "trainer/tokens/token_file.hpp"

#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;

std::string as_bytes(const std::vector<std::uint16_t>& tokens) {
  std::string bytes(tokens.size() * 2, '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return bytes;
}

// Returns a header in the format of llm.c.
std::string header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::array<std::int32_t, 256> numbers{magic, version, count};
  std::string bytes(sizeof numbers, '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

constexpr std::int32_t kLlmC = 20240520;

std::string refusal(const TemporaryFolder& folder, const std::string& name, const std::string& content,
                    std::int64_t limit = 0) {
  write_text(folder / name, content);
  try {
    token_source(folder / name, /*block=*/4, /*vocabulary=*/1000, limit, "data.train_samples");
  } catch (const UsageError& error) {
    const std::string text = error.what();
    return text.substr(text.find(": ") + 2);
  }
  return "";
}

TEST(Tokens, ASampleIsTokensAndTheirNextTokens) {
  TemporaryFolder folder;
  const std::vector<std::uint16_t> tokens{1, 2, 3, 4, 5, 6, 7, 8, 999, 10, 11};
  write_text(folder / "bare.bin", as_bytes(tokens));
  write_text(folder / "llm.bin", header(kLlmC, 1, 11) + as_bytes(tokens));
  for (const char* name : {"bare.bin", "llm.bin"}) {
    const auto source = token_source(folder / name, 4, 1000, 0, "");
    EXPECT_EQ(source->size(), 2) << "the last two are too few";
    EXPECT_EQ(source->weight(0), 4);
    const std::vector<std::int64_t> both{1, 0};
    const Batch batch = source->make(both, {});
    EXPECT_EQ(batch.weight, 8);
    EXPECT_TRUE(at::equal(batch.tensors.at(0), at::tensor({5, 6, 7, 8, 1, 2, 3, 4}, at::kLong).view({2, 4})));
    EXPECT_TRUE(at::equal(batch.tensors.at(1), at::tensor({6, 7, 8, 999, 2, 3, 4, 5}, at::kLong).view({2, 4})));
  }
  EXPECT_EQ(token_source(folder / "bare.bin", 4, 1000, 0, "")->fingerprint(),
            token_source(folder / "llm.bin", 4, 1000, 0, "")->fingerprint());
  EXPECT_NE(token_source(folder / "bare.bin", 4, 1000, 1, "")->fingerprint(),
            token_source(folder / "bare.bin", 4, 1000, 0, "")->fingerprint());
}

std::string as_wide_bytes(const std::vector<std::uint32_t>& tokens) {
  std::string bytes(tokens.size() * 4, '\0');
  std::memcpy(bytes.data(), tokens.data(), bytes.size());
  return bytes;
}

TEST(Tokens, MayHave32Bits) {
  TemporaryFolder folder;
  const std::vector<std::uint32_t> tokens{1, 70'000, 3, 128'000, 5};
  write_text(folder / "bare.bin", as_wide_bytes(tokens));
  write_text(folder / "llm.bin", header(20240801, 7, 5) + as_wide_bytes(tokens));
  write_text(folder / "ours.bin", encode_token_file(tokens, 128'256));
  const std::vector<std::int64_t> first{0};
  for (const char* name : {"bare.bin", "llm.bin", "ours.bin"}) {
    const TokenReading reading{.width = name == std::string("bare.bin") ? 4U : 2U};
    const Batch batch = token_source(folder / name, 4, 128'256, 0, "", reading)->make(first, {});
    EXPECT_TRUE(at::equal(batch.tensors.at(0), at::tensor({1, 70'000, 3, 128'000}, at::kLong).view({1, 4}))) << name;
  }
  EXPECT_EQ(refusal(folder, "a.bin", header(20240801, 1, 5) + as_wide_bytes(tokens)),
            "has version 1 of llm.c's header; expected version 7, with tokens of 32 bits");
}

TEST(Tokens, AreWrittenWith16BitsIfSufficient) {
  const std::vector<std::uint32_t> tokens{1, 2, 65'535};
  EXPECT_EQ(encode_token_file(tokens, 65'536), header(kLlmC, 1, 3) + as_bytes({1, 2, 65'535}));
  EXPECT_EQ(encode_token_file(tokens, 65'537), header(20240801, 7, 3) + as_wide_bytes(tokens));
}

// A vocabulary with an additional token for each pair of equal letters.
class Doubles : public Vocabulary {
 public:
  std::int64_t size() const override { return 512; }
  std::vector<std::uint32_t> encode(std::string_view text) const override {
    std::vector<std::uint32_t> tokens;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool twice = i + 1 < text.size() && text[i] == text[i + 1];
      tokens.push_back((twice ? 256U : 0U) + static_cast<unsigned char>(text[i]));
      if (twice) ++i;
    }
    return tokens;
  }
  std::string bytes_of(std::int64_t) const override { return ""; }
};

TEST(Tokens, TextIsEncodedByAVocabulary) {
  TemporaryFolder folder;
  write_text(folder / "text", "aabccdd");
  const std::vector<std::int64_t> first{0};
  const Batch batch =
      token_source(folder / "text", 3, 512, 0, "", {.vocabulary = std::make_shared<Doubles>()})->make(first, {});
  EXPECT_TRUE(at::equal(batch.tensors.at(0), at::tensor({353, 98, 355}, at::kLong).view({1, 3})));
  EXPECT_TRUE(at::equal(batch.tensors.at(1), at::tensor({98, 355, 356}, at::kLong).view({1, 3})));
  write_text(folder / "a.bin", as_bytes({1, 2, 3, 4, 5}));
  EXPECT_EQ(token_source(folder / "a.bin", 4, 512, 0, "", {.vocabulary = std::make_shared<Doubles>()})->size(), 1)
      << "tokens are not encoded again";
}

TEST(Tokens, TextWithoutAVocabularyIsBytes) {
  TemporaryFolder folder;
  write_text(folder / "text", "a\xff\n");
  const std::vector<std::int64_t> first{0};
  const Batch batch = token_source(folder / "text", 2, 256, 0, "")->make(first, {});
  EXPECT_TRUE(at::equal(batch.tensors.at(0), at::tensor({97, 255}, at::kLong).view({1, 2})));
  EXPECT_TRUE(at::equal(batch.tensors.at(1), at::tensor({255, 10}, at::kLong).view({1, 2})));
}

TEST(Tokens, TheTokenAfterADocumentEndIsNotPredicted) {
  TemporaryFolder folder;
  write_text(folder / "a.bin", as_bytes({1, 9, 2, 3, 9, 9, 9, 9, 4, 5, 6, 7, 9}));
  const auto source = token_source(folder / "a.bin", 4, 1000, 0, "", {.end_of_document = 9});
  EXPECT_EQ(source->weight(0), 3);
  EXPECT_EQ(source->weight(1), 0);
  EXPECT_EQ(source->weight(2), 4);
  const std::vector<std::int64_t> all{0, 1, 2};
  const Batch batch = source->make(all, {});
  EXPECT_EQ(batch.weight, 7);
  EXPECT_TRUE(at::equal(batch.tensors.at(0), at::tensor({1, 9, 2, 3, 9, 9, 9, 9, 4, 5, 6, 7}, at::kLong).view({3, 4})));
  constexpr std::int64_t kNo = kNotPredicted;
  EXPECT_TRUE(
      at::equal(batch.tensors.at(1), at::tensor({std::int64_t{9}, kNo, std::int64_t{3}, std::int64_t{9}, kNo, kNo, kNo, kNo,
                                                 std::int64_t{5}, std::int64_t{6}, std::int64_t{7}, std::int64_t{9}},
                                                at::kLong)
                                         .view({3, 4})));
}

TEST(Tokens, InvalidFilesAreRefused) {
  TemporaryFolder folder;
  EXPECT_EQ(refusal(folder, "a.bin", ""), "is empty");
  EXPECT_EQ(refusal(folder, "a.bin", "abc"),
            "has 3 bytes, which is not a multiple of the token size, 2; a text file must not be named *.bin");
  EXPECT_EQ(refusal(folder, "a.bin", as_bytes({1, 2, 3, 4})), "has 4 tokens; one sample of data.block_size 4 needs 5");
  EXPECT_EQ(refusal(folder, "a.txt", "abcd"), "has 4 tokens; one sample of data.block_size 4 needs 5");
  EXPECT_EQ(refusal(folder, "a.txt", "abcde"), "");
  EXPECT_EQ(refusal(folder, "a.bin", header(kLlmC, 7, 5) + as_bytes({1, 2, 3, 4, 5})),
            "has version 7 of llm.c's header; expected version 1, with tokens of 16 bits");
  for (const std::int32_t count : {4, 6, -1, 2'000'000'000}) {
    EXPECT_EQ(refusal(folder, "a.bin", header(kLlmC, 1, count) + as_bytes({1, 2, 3, 4, 5})),
              "its header states " + std::to_string(count) + " tokens of 2 bytes each, but 10 bytes follow");
  }
  EXPECT_NE(refusal(folder, "a.txt", "abcdefghi", /*limit=*/3).find("holds only 2 samples of data.block_size 4. Lower "),
            std::string::npos);
  EXPECT_THROW(token_source(folder / "none.bin", 4, 1000, 0, ""), UsageError);
  EXPECT_THROW(token_source(folder.path(), 4, 1000, 0, ""), UsageError);
}

// Files inside a container must be refused. If they were accepted, the bytes of the container would be used as training data.
TEST(Tokens, FilesInsideAContainerAreRefused) {
  TemporaryFolder folder;
  const std::string rest(600, '\1');
  std::string tar = rest;
  tar.replace(257, 5, "ustar");
  const std::vector<std::pair<std::string, std::string>> containers{
      {std::string("\x93NUMPY\1\0", 8), "a NumPy array (.npy)"},
      {std::string("\x1f\x8b\x08\0\0\0\0\0\2\xff", 10), "a gzip file"},
      {"PK\3\4", "a zip archive (.zip, .npz, .pt)"},
      {"PAR1", "a Parquet file"},
      {"\x28\xb5\x2f\xfd", "a zstd file"},
      {std::string("\xfd"
                   "7zXZ\0",
                   6),
       "an xz file"},
      {"BZh91AY&SY", "a bzip2 file"},
      {"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", "a PyTorch file (.pt)"},
      {std::string("\x80\4\x95\x20\0\0\0\0\0\0\0", 11), "a pickle of Python"},
      {std::string("\x80\5\x95\x20\0\0\0\0\0\0\0", 11), "a pickle of Python"},
      {std::string("\x20\0\0\0\0\0\0\0{\"", 10), "a safetensors file"},
      {"\x89HDF\r\n\x1a\n", "an HDF5 file"},
      {std::string("ARROW1\0\0", 8), "an Arrow file"},
      {tar, "a tar archive"}};
  for (const auto& [magic, name] : containers) {
    for (const char* file : {"a.txt", "a.bin"}) {
      EXPECT_TRUE(refusal(folder, file, magic + rest).starts_with("is " + name + "; expected a text file, or a *.bin file"))
          << name << ": " << refusal(folder, file, magic + rest);
    }
  }
  // These texts and tokens start like a container file, but are valid.
  EXPECT_EQ(refusal(folder, "a.txt", "PARIS, BZh9 and PK, {\"a\": 1}"), "");
  EXPECT_EQ(refusal(folder, "a.bin", as_bytes({0x8b1f, 0x2008, 1, 2, 3, 4, 5, 6})), "");
}

TEST(Tokens, AnUnknownTokenIsNamedWithItsPosition) {
  TemporaryFolder folder;
  write_text(folder / "a.bin", as_bytes({1, 2, 3, 1000, 5, 6}));
  const std::vector<std::int64_t> first{0};
  try {
    token_source(folder / "a.bin", 5, 1000, 0, "")->make(first, {});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("a.bin: token 3 is 1000; expected a number below data.vocab_size, 1000"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace ddprun::trainer
