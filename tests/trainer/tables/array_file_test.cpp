// Tests samples from arrays in .npy and safetensors files, and files that are refused.
#include "trainer/tables/array_file.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>

#include "common/base/error.hpp"
#include "tests/common/opened.hpp"
#include "tests/common/temporary_folder.hpp"
#include "trainer/checkpoint/safetensors.hpp"

namespace ddprun::trainer {
namespace {

using test::TemporaryFolder;
using test::write_text;

// Returns the bytes of a file in the format of numpy.save().
std::string npy(const std::string& type, const std::string& shape, const std::string& bytes,
                const std::string& order = "False") {
  std::string header = "{'descr': '" + type + "', 'fortran_order': " + order + ", 'shape': (" + shape + "), }";
  header.resize((header.size() + 10 + 64) / 64 * 64 - 11, ' ');
  header += '\n';
  const std::string length{static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  return std::string("\x93NUMPY\x01\0", 8) + length + header + bytes;
}

template <typename Number>
std::string bytes_of_numbers(const std::vector<Number>& numbers) {
  std::string bytes(numbers.size() * sizeof(Number), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

class Arrays : public testing::Test {
 protected:
  Arrays() {
    config_.type = DataConfig::Type::kArrays;
    config_.dir = folder_.path();
    for (const char* split : {"train", "test"}) {
      write(std::string(split) + "_inputs.npy", npy("<f8", "3, 2", bytes_of_numbers<double>({1, 2, 3, 4, 5, 6})));
      write(std::string(split) + "_targets.npy", npy("|u1", "3,", std::string("\x01\x02\x09")));
    }
  }

  void write(const std::string& name, const std::string& text) { write_text(folder_ / name, text); }

  std::string refusal() const {
    try {
      describe_arrays(config_);
      read_arrays(config_);
    } catch (const UsageError& error) {
      const std::string text = error.what();
      const std::string folder = folder_.path().string() + "/";
      return text.starts_with(folder) ? text.substr(folder.size()) : text;
    }
    return "";
  }

  TemporaryFolder folder_;
  DataConfig config_;
};

TEST_F(Arrays, NumpyArraysBecomeFloatsAndClasses) {
  const Sources data = read_arrays(config_);
  const std::array<std::int64_t, 2> samples{2, 0};
  const Batch batch = data.train->make(samples, {});
  EXPECT_TRUE(at::equal(batch.tensors[0], at::tensor({5.0F, 6.0F, 1.0F, 2.0F}).view({2, 2})));
  EXPECT_TRUE(at::equal(batch.tensors[1], at::tensor({9L, 1L}, at::kLong)));
  EXPECT_EQ(describe_arrays(config_).tensors[0].sizes, data.train->describe().tensors[0].sizes);
  EXPECT_EQ(describe_arrays(config_).tensors[1].sizes, data.train->describe().tensors[1].sizes);
}

TEST_F(Arrays, SafetensorsArraysAreFoundByName) {
  const at::Tensor images = at::arange(36, at::kFloat).view({3, 1, 3, 4}), numbers = at::arange(6, at::kFloat).view({3, 2});
  write("train.safetensors", encode_safetensors({{.name = "y", .tensor = numbers}, {.name = "x", .tensor = images}}));
  config_.train_inputs = config_.test_inputs = "train.safetensors:x";
  config_.train_targets = config_.test_targets = "train.safetensors:y";
  config_.predict = DataConfig::Predict::kNumber;
  config_.train_samples = 2;
  const Sources data = read_arrays(config_);
  EXPECT_EQ(data.train->size(), 2);
  EXPECT_EQ(data.test->size(), 3);
  const std::array<std::int64_t, 1> sample{1};
  EXPECT_TRUE(at::equal(data.train->make(sample, {}).tensors[0][0], images[1]));
  EXPECT_TRUE(at::equal(data.train->make(sample, {}).tensors[1][0], numbers[1]));
  EXPECT_EQ(describe_arrays(config_).tensors[0].sizes, (std::vector<std::int64_t>{1, 3, 4}));
  EXPECT_EQ(describe_arrays(config_).tensors[1].sizes, std::vector<std::int64_t>{2});
  config_.predict = DataConfig::Predict::kClass;
  EXPECT_EQ(
      refusal(),
      "'train.safetensors:y': expected one integer per sample, its class. To predict numbers, set data.predict to \"number\"");
  config_.train_targets = "train.safetensors:z";
  EXPECT_EQ(refusal(), "train.safetensors: has no tensor 'z'; it has y, x");
}

TEST_F(Arrays, ErrorsAreNamed) {
  config_.classes = 9;
  EXPECT_EQ(refusal(), "'train_targets.npy': sample 2 has class 9; expected 0..8. Check the file, or data.classes.");
  const std::string six(48, '\0');
  for (const auto& [content, expected] : std::initializer_list<std::pair<std::string, std::string>>{
           {"no array", "train_inputs.npy: is not a .npy file"},
           {npy("<f8", "3, 2", six, "True"),
            "train_inputs.npy: is stored in Fortran order; expected C order. Save numpy.ascontiguousarray() of the array"},
           {npy(">f8", "3, 2", six),
            "train_inputs.npy: has elements of type '>f8'; expected numbers in the byte order of this machine, such as '<f4'. "
            "Convert it with astype('float32')"},
           {npy("<f8", "3, 3", six), "train_inputs.npy: its header states 72 bytes of numbers, but 48 follow"},
           {npy("<f8", "3, 1", six), "train_inputs.npy: its header states 24 bytes of numbers, but 48 follow"},
           {npy("<f8", "2, 3", six),
            "'train_inputs.npy' has 2 samples but 'train_targets.npy' has 3; expected the same number"},
           {npy("<f8", "", six.substr(0, 8)),
            "train_inputs.npy: expected an array whose first dimension counts the samples, found a scalar or an empty array"},
           {npy("<f8", "0, 3", ""),
            "train_inputs.npy: expected an array whose first dimension counts the samples, found a scalar or an empty array"},
           {npy("<f8", "-3, 2", six), "train_inputs.npy: has an invalid shape in its header: -3, 2), }"},
           {npy("<f8", "3, 2", six).substr(0, 40), "train_inputs.npy: is shorter than its header states"}}) {
    write("train_inputs.npy", content);
    EXPECT_EQ(refusal().substr(0, expected.size()), expected);
  }
  for (const auto& [bytes, version] : {std::pair{"\x09\0", "9.0"}, std::pair{"\x01\x05", "1.5"}, std::pair{"\0\0", "0.0"}}) {
    write("train_inputs.npy", npy("<f8", "3, 2", six).replace(6, 2, std::string(bytes, 2)));
    EXPECT_EQ(refusal(), std::string("train_inputs.npy: has version ") + version +
                             " of the .npy format; expected 1.0, 2.0 or 3.0. Save the array again with numpy.save()");
  }
  std::string torn = npy("<f8", "3, 2", six);
  torn.replace(torn.find("(3, 2)"), 6, "      ");
  write("train_inputs.npy", torn);
  EXPECT_EQ(refusal(), "train_inputs.npy: has no shape in its header");
  write("train_inputs.npy", npy("<f8", "3, 2", six));
  config_.classes = 10;
  write("test_inputs.npy", npy("<f8", "3, 1", six.substr(0, 24)));
  EXPECT_EQ(refusal(), "a sample of 'test_inputs.npy' is 1, but one of 'train_inputs.npy' is 2; expected the same");
  config_.train_inputs = "train_inputs.txt";
  EXPECT_EQ(refusal(), "'train_inputs.txt' does not name an array; expected FILE.npy or FILE.safetensors:NAME");
}

// The file is opened once for both reads. If open() were called twice, the name could refer to another file at the second
// call.
TEST_F(Arrays, TheCheckedFileIsTheOneRead) {
  write("x.safetensors", encode_safetensors({{"x", at::arange(6, at::kFloat).view({3, 2})}}));
  for (const char* what : {"train_inputs.npy", "x.safetensors:x"}) {
    test::Opened opened(folder_ / std::string(what).substr(0, std::string(what).find(':')));
    const at::Tensor array = read_array(folder_.path(), what);
    EXPECT_EQ(array.size(0), 3);
    EXPECT_EQ(opened.times(), 1) << what;
  }
}

TEST_F(Arrays, NumpyHeadersMayHaveAnOddLength) {
  std::string array = npy("<f8", "3, 2", bytes_of_numbers<double>({1, 2, 3, 4, 5, 6}));
  array.insert(array.find('\n'), " ");
  ++array[8];
  write("train_inputs.npy", array);
  const at::Tensor read = read_array(folder_.path(), "train_inputs.npy");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(read.const_data_ptr()) % sizeof(double), 0u);
  EXPECT_EQ(read.sum().item<double>(), 21);
}

TEST_F(Arrays, BooleanArraysHoldZeroAndOneOnly) {
  write("train_targets.npy", npy("|b1", "3,", std::string("\0\1\2", 3)));
  EXPECT_EQ(refusal(), "'train_targets.npy': its elements are of type bool, but some bytes are neither 0 nor 1");
}

TEST_F(Arrays, NaNIsNamedBeforeTraining) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinite = std::numeric_limits<double>::infinity();
  const std::string advice = "; expected finite numbers. Replace such values, or remove these samples";
  write("train_inputs.npy", npy("<f8", "3, 2", bytes_of_numbers<double>({1, 2, 3, nan, infinite, 6})));
  EXPECT_EQ(refusal(), "'train_inputs.npy': sample 1 has nan in column 1" + advice);
  write("train_inputs.npy", npy("<f8", "3, 2", bytes_of_numbers<double>({1, 2, 3, 4, 1e300, 6})));
  EXPECT_EQ(refusal(), "'train_inputs.npy': sample 2 has 1e+300 in column 0, which does not fit into float32" + advice);
  config_.train_samples = 2;
  EXPECT_EQ(refusal(), "") << "what is not used is not looked at";
  write("test_inputs.npy", npy("<f4", "3, 2", bytes_of_numbers<float>({1, 2, 3, 4, 5, -static_cast<float>(infinite)})));
  EXPECT_EQ(refusal(), "'test_inputs.npy': sample 2 has -inf in column 1" + advice);
  write("test_inputs.npy", npy("<f4", "3, 2", bytes_of_numbers<float>({1, 2, 3, 4, 5, 6})));

  config_.predict = DataConfig::Predict::kNumber;
  for (const char* split : {"train", "test"}) {
    write(std::string(split) + "_targets.npy", npy("<f8", "3,", bytes_of_numbers<double>({1, nan, 2})));
  }
  EXPECT_EQ(refusal(), "'train_targets.npy': sample 1 has nan" + advice);
  at::Tensor images = at::arange(36, at::kFloat).view({3, 1, 3, 4});
  images[2][0][1][3] = nan;
  write("train.safetensors", encode_safetensors({{.name = "x", .tensor = images}}));
  config_.train_inputs = config_.test_inputs = "train.safetensors:x";
  config_.train_samples = 0;
  EXPECT_EQ(refusal(), "'train.safetensors:x': sample 2 has nan at [0, 1, 3]" + advice);
}

}  // namespace
}  // namespace ddprun::trainer
