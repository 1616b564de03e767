// Tests samples that are read from safetensors files.
#include "trainer/exported/tensor_source.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <string>

#include "common/base/error.hpp"
#include "tests/common/opened.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/exported/sample_folder.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {
namespace {

const std::vector<ExportedTensor> kWanted{{.name = "tokens", .type = at::kInt, .sizes = {3}},
                                          {.name = "good", .type = at::kBool}};

class TensorFiles : public ::testing::Test {
 protected:
  std::filesystem::path written(const std::vector<NamedTensor>& tensors) const {
    const std::filesystem::path file = folder_ / "train.safetensors";
    std::ofstream(file, std::ios::binary) << encode_safetensors(tensors);
    return file;
  }

  std::string refusal_of_tensors(const std::vector<NamedTensor>& tensors, std::int64_t limit = 0) const {
    const std::filesystem::path file = written(tensors);
    try {
      tensor_source(file, kWanted, limit, "data.train_samples");
    } catch (const UsageError& error) {
      const std::string text = error.what();
      return text.starts_with(file.string()) ? text.substr(file.string().size()) : text;
    }
    return "no error";
  }

  ddprun::test::TemporaryFolder folder_;
};

const at::Tensor kTokens = at::arange(12, at::kInt).view({4, 3});
at::Tensor good() {
  return at::arange(4).remainder(2).to(at::kBool);
}

TEST_F(TensorFiles, ABatchHasTheRequestedSamplesInModelOrder) {
  const auto source =
      tensor_source(written({{"good", good()}, {"tokens", kTokens}, {"other", at::zeros({9})}}), kWanted, 0, "");
  EXPECT_EQ(source->size(), 4);
  const Description description = source->describe();
  ASSERT_EQ(description.tensors.size(), 2u);
  EXPECT_EQ(description.tensors[0].sizes, std::vector<std::int64_t>{3});
  EXPECT_EQ(description.tensors[0].type, at::kInt);
  EXPECT_EQ(description.tensors[1].type, at::kBool);
  constexpr std::array<std::int64_t, 3> kSamples{2, 0, 2};
  const Batch batch = source->make(kSamples, {});
  EXPECT_EQ(batch.weight, 3);
  EXPECT_TRUE(at::equal(batch.tensors[0][0], kTokens[2]));
  EXPECT_TRUE(at::equal(batch.tensors[0][1], kTokens[0]));
  EXPECT_FALSE(batch.tensors[1].any().item<bool>());  // the boolean values of samples 0 and 2 are false
}

TEST_F(TensorFiles, TheNumberOfSamplesCanBeLimited) {
  const auto file = written({{"good", good()}, {"tokens", kTokens}});
  const auto all = tensor_source(file, kWanted, 0, "");
  const auto two = tensor_source(file, kWanted, 2, "");
  EXPECT_EQ(two->size(), 2);
  EXPECT_NE(two->fingerprint(), all->fingerprint());
  EXPECT_TRUE(all->fingerprint().starts_with("4 x (int32 [3], bool []) "));
}

TEST_F(TensorFiles, OtherSamplesHaveAnotherFingerprint) {
  const std::string one = tensor_source(written({{"good", good()}, {"tokens", kTokens}}), kWanted, 0, "")->fingerprint();
  EXPECT_NE(tensor_source(written({{"good", good()}, {"tokens", kTokens + 1}}), kWanted, 0, "")->fingerprint(), one);
}

TEST_F(TensorFiles, UnsuitableTensorsAreRefused) {
  EXPECT_EQ(refusal_of_tensors({{"tokens", kTokens}}),
            ": has no tensor 'good', which is an input of the model; its tensors: tokens");
  EXPECT_EQ(refusal_of_tensors({{"good", good()}, {"tokens", kTokens.to(at::kLong)}}),
            ": a sample is tokens int64 [3], but the model takes tokens int32 [3]; the file needs the number of samples as an "
            "additional first dimension");
  EXPECT_EQ(refusal_of_tensors({{"good", good()}, {"tokens", kTokens.view({6, 2})}}),
            ": a sample is tokens int32 [2], but the model takes tokens int32 [3]; the file needs the number of samples as an "
            "additional first dimension");
  EXPECT_EQ(refusal_of_tensors({{"good", good()[0]}, {"tokens", kTokens}}),
            ": a sample is good bool [] without a first dimension, but the model takes good bool []; the file needs the number "
            "of samples as an additional first dimension");
  EXPECT_EQ(refusal_of_tensors({{"good", good().narrow(0, 0, 3)}, {"tokens", kTokens}}),
            ": 'tokens' has 4 samples, but 'good' has 3; expected the same number");
  EXPECT_EQ(refusal_of_tensors({{"good", good().narrow(0, 0, 0)}, {"tokens", kTokens.narrow(0, 0, 0)}}), ": has no samples");
  EXPECT_EQ(refusal_of_tensors({{"good", good()}, {"tokens", kTokens}}, 5),
            "data.train_samples is 5, but '" + (folder_ / "train.safetensors").string() +
                "' holds only 4 samples. Lower data.train_samples, or set it to 0 to use all of them.");
}

TEST_F(TensorFiles, AnUnsupportedTensorMayExistButNotBeRequested) {
  const auto file = written({{"tokens", kTokens}, {"good", good()}, {"other", at::zeros({4}, at::kChar)}});
  std::ifstream in(file, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  bytes.replace(bytes.find("\"I8\""), 4, "\"F8\"");
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_EQ(tensor_source(file, kWanted, 0, "")->size(), 4);
  try {
    tensor_source(file, {{.name = "other", .type = at::kChar}}, 0, "");
    ADD_FAILURE() << "no error";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find(": tensor 'other' has dtype \"F8\"; expected one of F64"), std::string::npos)
        << error.what();
  }
}

TEST_F(TensorFiles, IncompleteFilesAreRefused) {
  const auto file = written({{"good", good()}, {"tokens", kTokens}});
  std::filesystem::resize_file(file, std::filesystem::file_size(file) - 1);
  EXPECT_THROW(tensor_source(file, kWanted, 0, ""), UsageError);
  std::filesystem::resize_file(file, 0);
  EXPECT_THROW(tensor_source(file, kWanted, 0, ""), UsageError);
  std::filesystem::remove(file);
  EXPECT_THROW(tensor_source(file, kWanted, 0, ""), UsageError);
}

// The file is opened once for both reads. If open() were called twice, the name could refer to another file at the second
// call.
TEST_F(TensorFiles, TheCheckedFileIsTheOneRead) {
  const auto file = written({{"good", good()}, {"tokens", kTokens}});
  ddprun::test::Opened opened(file);
  tensor_source(file, kWanted, 0, "");
  EXPECT_EQ(opened.times(), 1);
}

TEST_F(TensorFiles, ABoolIsZeroOrOne) {
  const auto file = written({{"good", good()}, {"tokens", kTokens}});
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put(2);
  EXPECT_THROW(tensor_source(file, kWanted, 0, ""), UsageError);
}

TEST_F(TensorFiles, FilesAreThoseOfTheConfig) {
  test::write_sample_model(folder_ / "m.ddp", test::sample_model());
  const std::vector<NamedTensor> tensors{{"x", at::zeros({5, 2})}, {"y", at::zeros({5, 1})}};
  std::filesystem::rename(written(tensors), folder_ / "some.safetensors");
  written({{"x", at::zeros({3, 2})}, {"y", at::zeros({3, 1})}});
  TrainConfig config;
  config.model.path = folder_ / "m.ddp";
  config.data.dir = folder_.path();
  config.data.test = "some.safetensors";
  const Sources sources = read_tensor_sources(config);
  EXPECT_EQ(sources.train->size(), 3);
  EXPECT_EQ(sources.test->size(), 5);
  EXPECT_EQ(describe_tensors(config).tensors.size(), 2u);
  config.data.train = "none.safetensors";
  EXPECT_THROW(describe_tensors(config), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
