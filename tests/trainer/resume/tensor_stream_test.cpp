// Tests the reader of a safetensors file whose bytes arrive in pieces: the destinations of the tensors, and the errors.
#include "trainer/resume/tensor_stream.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

using Destinations = std::map<std::string, at::Tensor>;

std::vector<NamedTensor> tensors_of_stream_test() {
  return {
      {"matrix", at::arange(35, at::kFloat).view({5, 7})}, {"none", at::empty({0, 3}, at::kFloat)},
      {"count", at::scalar_tensor(41, at::kLong)},         {"image", at::arange(2 * 3 * 2 * 2, at::kFloat).view({2, 3, 2, 2})},
      {"flags", at::full({3}, true, at::kBool)},           {"last", at::empty({0}, at::kByte)}};
}

// Reads a file in pieces of `piece` bytes.
std::vector<NamedTensor> streamed(std::string_view file, std::size_t piece, const Destinations& destinations = {},
                                  std::string checksum = {}) {
  TensorStream stream("x.safetensors", static_cast<std::int64_t>(file.size()), [&](const std::string& name) {
    const auto found = destinations.find(name);
    return found == destinations.end() ? at::Tensor() : found->second;
  });
  if (checksum.empty()) checksum = xxh3_128_of(file);
  for (; !file.empty(); file.remove_prefix(std::min(piece, file.size()))) stream.add(file.substr(0, piece));
  return stream.finish(checksum);
}

std::string stream_refusal(std::string_view file, const std::string& checksum = {}) {
  try {
    streamed(file, 16, {}, checksum);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

const at::Tensor& tensor_named(const std::vector<NamedTensor>& tensors, const std::string& name) {
  return std::ranges::find(tensors, name, &NamedTensor::name)->tensor;
}

void expect_tensors(const std::vector<NamedTensor>& found) {
  const std::vector<NamedTensor> expected = tensors_of_stream_test();
  ASSERT_EQ(found.size(), expected.size());
  for (const NamedTensor& one : expected) {
    EXPECT_EQ(tensor_named(found, one.name).scalar_type(), one.tensor.scalar_type()) << one.name;
    EXPECT_TRUE(at::equal(tensor_named(found, one.name), one.tensor)) << one.name;
  }
}

TEST(TensorStream, ThePiecesDoNotChangeTheTensors) {
  const std::string file = encode_safetensors(tensors_of_stream_test());
  for (std::size_t piece = 1; piece <= file.size(); ++piece) expect_tensors(streamed(file, piece));
}

TEST(TensorStream, WritesToDestinationsOfTheSameShapeAndType) {
  const std::string file = encode_safetensors(tensors_of_stream_test());
  const Destinations destinations{
      {"matrix", at::zeros({5, 7}, at::kFloat)}, {"count", at::zeros({}, at::kLong)}, {"flags", at::zeros({4}, at::kBool)}};
  const std::vector<NamedTensor> found = streamed(file, 9, destinations);
  expect_tensors(found);
  EXPECT_EQ(tensor_named(found, "matrix").const_data_ptr(), destinations.at("matrix").const_data_ptr());
  EXPECT_EQ(tensor_named(found, "count").const_data_ptr(), destinations.at("count").const_data_ptr());
  EXPECT_TRUE(at::equal(destinations.at("flags"), at::zeros({4}, at::kBool)));  // another shape, so it was not changed
}

TEST(TensorStream, ADestinationOfAnotherTypeIsNotChanged) {
  const std::string file = encode_safetensors(tensors_of_stream_test());
  const Destinations destinations{{"matrix", at::zeros({5, 7}, at::kDouble)}};
  expect_tensors(streamed(file, 9, destinations));
  EXPECT_TRUE(at::equal(destinations.at("matrix"), at::zeros({5, 7}, at::kDouble)));
}

TEST(TensorStream, KeepsTheMemoryFormatOfADestination) {
  const std::string file = encode_safetensors(tensors_of_stream_test());
  const at::Tensor image = at::zeros({2, 3, 2, 2}, at::kFloat).contiguous(at::MemoryFormat::ChannelsLast);
  const std::vector<NamedTensor> found = streamed(file, 9, {{"image", image}});
  expect_tensors(found);
  EXPECT_EQ(tensor_named(found, "image").const_data_ptr(), image.const_data_ptr());
  EXPECT_FALSE(image.is_contiguous());
}

// The bit is in the data, or in the header, which then may not be parsed.
TEST(TensorStream, EachFlippedBitIsReportedAsDamage) {
  const std::string file = encode_safetensors(tensors_of_stream_test());
  const std::string checksum = xxh3_128_of(file);
  for (std::size_t i = 0; i < file.size(); ++i) {
    std::string damaged = file;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    EXPECT_NE(stream_refusal(damaged, checksum).find("x.safetensors has checksum"), std::string::npos) << i;
  }
}

TEST(TensorStream, InvalidFilesAreRefusedLikeByTheReader) {
  EXPECT_NE(stream_refusal("short").find("too few for a header"), std::string::npos);
  EXPECT_NE(stream_refusal(std::string(16, '\xff')).find("states a header of"), std::string::npos);
  const std::string header = R"({"w":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]}})";
  const std::uint64_t length = header.size();
  const std::string start = std::string(reinterpret_cast<const char*>(&length), sizeof length) + header;
  EXPECT_EQ(stream_refusal(start + '\1'), "");
  EXPECT_NE(stream_refusal(start + '\2').find("contains bytes other than 0 and 1"), std::string::npos);
  EXPECT_NE(stream_refusal(start).find("x.safetensors"), std::string::npos);
  EXPECT_NE(stream_refusal(start + "\1\1").find("x.safetensors"), std::string::npos);
}

}  // namespace
}  // namespace ddprun::trainer
