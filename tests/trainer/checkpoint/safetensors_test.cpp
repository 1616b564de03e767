// Tests safetensors files: the written bytes, the tensors that are read, and the files that are refused.
#include "trainer/checkpoint/safetensors.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;

std::string with_length(const std::string& header, const std::string& data = "") {
  const std::uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof length);
  return file + header + data;
}

// Returns the error message for a file with these bytes, or an empty string if the file is accepted.
std::string refusal(const std::string& bytes) {
  TemporaryFolder folder;
  write_text(folder / "x.safetensors", bytes);
  try {
    read_safetensors(folder / "x.safetensors");
    return "";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("x.safetensors"), std::string::npos) << error.what();
    return error.what();
  }
}

SafetensorsContent round_trip(const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& metadata = {}) {
  TemporaryFolder folder;
  write_text(folder / "x.safetensors", encode_safetensors(tensors, metadata));
  return read_safetensors(folder / "x.safetensors");
}

TEST(SafetensorsFile, HasLengthThenPaddedHeaderThenData) {
  const std::string bytes = encode_safetensors({{"w", at::arange(3, at::kByte)}});

  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0U);
  const std::string header = bytes.substr(8, length);
  EXPECT_EQ(header.substr(0, header.find_last_not_of(' ') + 1), R"({"w":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})");
  EXPECT_EQ(bytes.substr(8 + length), std::string("\0\1\2", 3));
}

TEST(SafetensorsFile, WithoutTensorsIsAnEmptyObject) {
  EXPECT_EQ(encode_safetensors({}), with_length("{}      "));
  EXPECT_TRUE(round_trip({}).tensors.empty());
}

TEST(SafetensorsFile, KeepsEveryDtypeShapeAndMetadata) {
  std::vector<NamedTensor> tensors;
  for (const at::ScalarType type :
       {at::kDouble, at::kLong, at::kFloat, at::kInt, at::kHalf, at::kBFloat16, at::kShort, at::kChar, at::kByte}) {
    tensors.push_back({c10::toString(type), at::arange(6, at::kFloat).reshape({2, 3}).to(type)});
  }
  tensors.push_back({"flags", at::arange(4, at::kInt).remainder(2).to(at::kBool)});
  tensors.push_back({"scalar", at::scalar_tensor(2.5, at::kFloat)});
  tensors.push_back({"nothing", at::empty({0, 5}, at::kFloat)});

  const SafetensorsContent back = round_trip(tensors, {{"format", "pt"}, {"author", "Größe \"x\""}});

  ASSERT_EQ(back.tensors.size(), tensors.size());
  for (const NamedTensor& original : tensors) {
    const auto found = std::find_if(back.tensors.begin(), back.tensors.end(),
                                    [&](const NamedTensor& named) { return named.name == original.name; });
    ASSERT_NE(found, back.tensors.end()) << original.name;
    EXPECT_EQ(found->tensor.scalar_type(), original.tensor.scalar_type()) << original.name;
    EXPECT_EQ(found->tensor.sizes(), original.tensor.sizes()) << original.name;
    EXPECT_TRUE(at::equal(found->tensor, original.tensor)) << original.name;
  }
  EXPECT_EQ(back.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"author", "Größe \"x\""}}));
}

TEST(SafetensorsFile, StoresTheElementsOfAView) {
  const at::Tensor transposed = at::arange(6, at::kFloat).reshape({2, 3}).t();

  const SafetensorsContent back = round_trip({{"t", transposed}});

  EXPECT_TRUE(at::equal(back.tensors.at(0).tensor, transposed));
  EXPECT_TRUE(back.tensors.at(0).tensor.is_contiguous());
}

TEST(SafetensorsFile, AlignsEachTensorToItsElements) {
  const SafetensorsPlan plan = plan_safetensors({{"a", at::ones({3}, at::kByte)},
                                                 {"b", at::ones({3}, at::kDouble)},
                                                 {"c", at::ones({3}, at::kHalf)},
                                                 {"d", at::ones({1})}});

  EXPECT_EQ(plan.head.size() % 8, 0U);
  std::vector<std::int64_t> begins;
  for (const TensorLayout& tensor : plan.tensors) begins.push_back(tensor.begin);
  // The order in the file is b, d, c, a, because tensors with larger elements come first.
  EXPECT_EQ(begins, (std::vector<std::int64_t>{0, 24, 28, 34}));
  EXPECT_EQ(plan.data_bytes, 37);
}

TEST(SafetensorsFile, NeedsUniqueNames) {
  EXPECT_THROW(encode_safetensors({{"a", at::ones({1})}, {"a", at::ones({1})}}), InternalError);
  EXPECT_THROW(encode_safetensors({{"__metadata__", at::ones({1})}}), InternalError);
}

struct Refused {
  const char* name;
  std::string bytes;
  const char* expected;
};
class RefusedFile : public testing::TestWithParam<Refused> {};

TEST_P(RefusedFile, ErrorsStateTheReason) {
  EXPECT_NE(refusal(GetParam().bytes).find(GetParam().expected), std::string::npos) << refusal(GetParam().bytes);
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

const std::string kFour(4, '\1');

std::string repeated(const std::string& text, int times) {
  std::string all;
  while (times-- > 0) all += text;
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    SafetensorsFile, RefusedFile,
    testing::Values(
        Refused{"Empty", "", "too few for a header"}, Refused{"ShortLength", "1234567", "too few for a header"},
        Refused{"HeaderLongerThanTheFile", with_length("{}").substr(0, 9), "states a header of 2 bytes"},
        Refused{"HugeHeader", std::string(8, '\xff'), "states a header of 18446744073709551615 bytes"},
        Refused{"NotJson", with_length("{oops}"), "not valid JSON"},
        Refused{"AnArray", with_length("[]"), "does not start with '{'"},
        Refused{"LeadingSpace", with_length(" {}"), "does not start with '{'"},
        Refused{"InvalidUtf8", with_length("{\"\xff\":1}"), "not valid JSON"},
        Refused{"DeepNesting", with_length("{\"a\":" + std::string(100000, '[')), "nested deeper"},
        Refused{"UnknownDtype", with_length("{" + entry("a", "F8_E4M3", "[4]", "[0,4]") + "}", kFour), "has dtype \"F8_E4M3\""},
        Refused{"SameNameTwice",
                with_length("{" + entry("a", "U8", "[4]", "[0,4]") + "," + entry("a", "U8", "[4]", "[0,4]") + "}", kFour),
                "key 'a' twice"},
        Refused{"MissingOffsets", with_length(R"({"a":{"dtype":"U8","shape":[4]}})", kFour), "must have exactly"},
        Refused{"NegativeShape", with_length("{" + entry("a", "U8", "[-4]", "[0,4]") + "}", kFour), "non-negative integer"},
        Refused{"FractionalShape", with_length("{" + entry("a", "U8", "[4.0]", "[0,4]") + "}", kFour), "non-negative integer"},
        Refused{"OffsetsBackwards", with_length("{" + entry("a", "U8", "[0]", "[4,0]") + "}", kFour),
                "expected increasing offsets"},
        Refused{"OffsetsPastTheEnd", with_length("{" + entry("a", "U8", "[5]", "[0,5]") + "}", kFour), "truncated?"},
        Refused{"ShapeOfOtherSize", with_length("{" + entry("a", "F32", "[2]", "[0,4]") + "}", kFour), "do not match"},
        Refused{"ShapeOverflows", with_length("{" + entry("a", "F32", "[4611686018427387905]", "[0,4]") + "}", kFour),
                "do not match"},
        Refused{"ShapeOverflowsBesideZero",
                with_length("{" + entry("a", "F32", "[0,4611686018427387905,4611686018427387905]", "[0,0]") + "}"),
                "do not match"},
        Refused{"MoreDimensionsThanTensorsHave",
                with_length("{" + entry("a", "U8", "[4" + repeated(",1", 64) + "]", "[0,4]") + "}", kFour),
                "a list of more than 64 elements"},
        Refused{"ListsInAList", with_length("{\"a\":[0" + repeated(",[]", 64) + "]}"), "a list of more than 64 elements"},
        Refused{"Overlap",
                with_length("{" + entry("a", "U8", "[3]", "[0,3]") + "," + entry("b", "U8", "[2]", "[2,4]") + "}", kFour),
                "overlap"},
        Refused{"Hole",
                with_length("{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("b", "U8", "[2]", "[2,4]") + "}", kFour),
                "there is a gap"},
        Refused{"DataLeftOver", with_length("{" + entry("a", "U8", "[3]", "[0,3]") + "}", kFour), "cover 3 bytes"},
        Refused{"MetadataNotText", with_length(R"({"__metadata__":{"a":1}})"), "object of strings"},
        Refused{"BoolOfTwo", with_length("{" + entry("a", "BOOL", "[4]", "[0,4]") + "}", "\1\1\2\1"), "other than 0 and 1"}),
    [](const testing::TestParamInfo<Refused>& param) { return param.param.name; });

TEST(SafetensorsFile, LimitsTheNumberOfEntries) {
  std::string header = R"({"__metadata__":{"a":"")";
  for (int i = 0; i < 1 << 20; ++i) header += ",\"" + std::to_string(i) + "\":\"\"";
  EXPECT_NE(refusal(with_length(header + "}}")).find("more than 1048576 tensors or metadata entries"), std::string::npos);
}

// The header has a gap between tensors, which is detected only after all entries. A parser that visits all entries again for
// each entry would take minutes for this header.
TEST(SafetensorsFile, ManyTensorsAreReadInLinearTime) {
  std::string header = "{" + entry("a", "U8", "[1]", "[1,2]");
  for (int i = 0; i < 100'000; ++i) header += "," + entry(std::to_string(i), "U8", "[0]", "[0,0]");
  EXPECT_NE(refusal(with_length(header + "}", "12")).find("there is a gap"), std::string::npos);
}

TEST(SafetensorsFile, QuotesAtMostOneHundredBytes) {
  const std::string name(5000, 'n');
  for (const std::string& header :
       {"{" + entry(name, "U8", "[4]", "[0,9]") + "}", "{\"" + name + "\":1,\"" + name + "\":2}",
        "{" + entry("a", name, "[4]", "[0,4]") + "}", "{" + entry("a", "U8", "[\"" + name + "\"]", "[0,4]") + "}"}) {
    const std::string text = refusal(with_length(header, kFour));
    EXPECT_NE(text.find(std::string(90, 'n')), std::string::npos) << text;
    EXPECT_EQ(text.find(std::string(101, 'n')), std::string::npos) << text.substr(0, 400);
  }
}

TEST(SafetensorsFile, UnsupportedTensorsMayBePresent) {
  TemporaryFolder folder;
  const std::filesystem::path file = folder / "x.safetensors";
  write_text(file, with_length("{" + entry("a", "F8_E4M3", "[4]", "[0,4]") + "," + entry("b", "U8", "[2,2]", "[4,8]") + "}",
                               kFour + kFour));
  const std::vector<StoredTensor> listed = list_safetensors(file);
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].type, at::ScalarType::Undefined);
  EXPECT_EQ(listed[0].problem, "tensor 'a' has dtype \"F8_E4M3\"; expected one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL");
  EXPECT_EQ(listed[1].type, at::kByte);
  EXPECT_EQ(listed[1].problem, "");
  EXPECT_EQ(listed[1].bytes, 4);
  write_text(file, with_length(R"({"a":{"dtype":8,"shape":[4],"data_offsets":[0,4]}})", kFour));
  EXPECT_THROW(list_safetensors(file), UsageError);
}

// If this process has no free descriptor, it cannot read a checkpoint. This does not mean that the checkpoint is bad.
TEST(SafetensorsFile, ALackOfDescriptorsIsNotAFileError) {
  TemporaryFolder folder;
  write_text(folder / "x", encode_safetensors({{"a", at::ones({1})}}));
  const auto read_without_descriptors = [&] {
    const rlimit none{};
    ::setrlimit(RLIMIT_NOFILE, &none);
    try {
      read_safetensors(folder / "x");
    } catch (const Error& error) {
      ::_exit(static_cast<int>(error.code()));
    }
    ::_exit(0);
  };
  EXPECT_EXIT(read_without_descriptors(), testing::ExitedWithCode(static_cast<int>(ExitCode::kInternal)), "");
}

TEST(SafetensorsFile, AMissingFileOrAFolderIsRefused) {
  TemporaryFolder folder;
  EXPECT_THROW(read_safetensors(folder / "none.safetensors"), UsageError);
  EXPECT_THROW(read_safetensors(folder.path()), UsageError);
}

// Reads randomly damaged files. The reader must not crash or allocate without a limit. It returns an error or complete tensors.
TEST(SafetensorsFile, SurvivesRandomDamage) {
  const std::string good = encode_safetensors({{"a", at::ones({2, 3})}, {"b", at::arange(5)}, {"c", at::ones({2}, at::kBool)}});
  TemporaryFolder folder;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    std::string bad = good;
    for (int changes = static_cast<int>(random() % 3) + 1; changes > 0; --changes) {
      const std::size_t at = random() % bad.size();
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
          break;
        case 1:
          bad[at] = static_cast<char>(random());
          break;
        case 2:
          bad.insert(at, 1, "0123456789[]{},:\"- "[random() % 19]);
          break;
        default:
          bad.resize(std::max<std::size_t>(at, 1));
          break;
      }
    }
    write_text(folder / "x", bad);
    try {
      const SafetensorsContent content = read_safetensors(folder / "x");
      std::int64_t bytes = 0;
      for (const NamedTensor& named : content.tensors) bytes += static_cast<std::int64_t>(named.tensor.nbytes());
      EXPECT_LE(bytes, static_cast<std::int64_t>(bad.size()));
    } catch (const UsageError&) {
    }
  }
}

}  // namespace
}  // namespace ddprun::trainer
