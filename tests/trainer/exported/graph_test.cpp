// Tests graphs that are written by hand: their results, and the error messages for invalid graphs.
#include "trainer/exported/graph.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <torch/version.h>

#include <random>
#include <string>
#include <vector>

#include "common/base/error.hpp"

namespace ddprun::trainer {
namespace {

GraphText parsed_graph(const std::string& lines) {
  return parse_graph("ddprun graph 1\n" + lines, "g");
}

std::vector<at::Tensor> results_of(const std::string& lines, const std::vector<at::Tensor>& inputs,
                                   c10::Device device = c10::kCPU) {
  return Graph(parsed_graph(lines)).run(inputs, device);
}

std::string refusal_of_graph(const std::string& text) {
  try {
    const Graph graph(parse_graph(text, "g"));
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}
std::string refusal_of_lines(const std::string& lines) {
  return refusal_of_graph("ddprun graph 1\n" + lines);
}

TEST(Graph, ComputesAndDifferentiatesItsOperators) {
  const at::Tensor x = at::arange(6, at::kFloat).view({3, 2}) - 2;
  const at::Tensor weight = at::ones({4, 2}).set_requires_grad(true);
  const std::string lines =
      "%0 = parameter w\n%1 = batch x\n%2 = op aten::linear %1 %0 none\n%3 = op aten::relu %2\n"
      "%4 = op aten::sum %3 default\nreturn %4 %3\n";
  const auto results = results_of(lines, {weight, x});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_TRUE(at::equal(results[1], at::relu(at::linear(x, weight))));
  results[0].backward();
  const at::Tensor found = weight.grad().clone();
  weight.mutable_grad().zero_();
  at::relu(at::linear(x, weight)).sum().backward();
  EXPECT_TRUE(at::equal(found, weight.grad()));
}

TEST(Graph, ListsItsInputsAndOperators) {
  const Graph graph(
      parsed_graph("%0 = parameter a.b\n%1 = buffer c%20d\n%2 = op aten::add.Tensor %0 %1 default\n%3 = op aten::relu %2\n"
                   "%4 = op aten::relu %3\nreturn %4\n"));
  ASSERT_EQ(graph.inputs().size(), 2u);
  EXPECT_EQ(graph.inputs()[0].name, "a.b");
  EXPECT_EQ(graph.inputs()[1].kind, GraphNode::Kind::kBuffer);
  EXPECT_EQ(graph.inputs()[1].name, "c d");
  EXPECT_EQ(graph.operators(), (std::vector<std::string>{"aten::add.Tensor", "aten::relu"}));
  EXPECT_EQ(graph.result_count(), 1u);
}

TEST(Graph, AWrappedNumberDecidesNoType) {
  const at::Tensor count = at::zeros({}, at::kLong);
  const at::Tensor half = at::ones({2}, at::kHalf);
  const auto results = results_of(
      "%0 = buffer count\n%1 = batch x\n%2 = op aten::add_.Tensor %0 i1 default\n%3 = op aten::mul.Tensor %1 f0.5\n"
      "return %2 %3\n",
      {count, half});
  EXPECT_EQ(count.item<std::int64_t>(), 1);  // the graph increments its input in place, as batch norm increments its counter
  EXPECT_EQ(results[1].scalar_type(), at::kHalf);
}

TEST(Graph, SizesAreComputedInEachRun) {
  const std::string lines =
      "%0 = batch x\n%1 = op aten::sym_size.int %0 i0\n%2 = compute mul %1 i3\n%3 = compute floordiv %2 i2\n"
      "%4 = op aten::view %0 [ %1 i-1 ]\n%5 = op aten::arange %3 default default device default\n"
      "%6 = compute sub i-7 %1\n%7 = compute mod %6 i4\n%8 = op aten::arange %7 default default device default\n"
      "return %4 %5 %8\n";
  for (const std::int64_t rows : {1, 5}) {
    const auto results = results_of(lines, {at::zeros({rows, 2, 3})});
    EXPECT_EQ(results[0].sizes(), (at::IntArrayRef{rows, 6}));
    EXPECT_EQ(results[1].size(0), rows * 3 / 2);
    EXPECT_EQ(results[2].size(0), ((-7 - rows) % 4 + 4) % 4);  // the result of % has the sign of the divisor, as in Python
  }
}

TEST(Graph, UnpacksResultsAndPassesTensorLists) {
  const at::Tensor x = at::arange(6).view({2, 3});
  const auto results = results_of(
      "%0 = batch x\n%1 = op aten::split.Tensor %0 i1 i1\n%2 = get %1 i0\n%3 = get %1 i2\n%4 = op aten::cat [ %3 %2 ] i1\n"
      "%5 = op aten::max.dim %0 i1 false\n%6 = get %5 i1\n%7 = op aten::index.Tensor %0 [ none %6 ]\nreturn %4 %7\n",
      {x});
  EXPECT_EQ(results[0].sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_EQ(results[0][0][0].item<std::int64_t>(), 2);
  EXPECT_EQ(results[1].sizes(), (at::IntArrayRef{2, 2}));
}

TEST(Graph, CreatesTensorsOnTheDeviceOfTheRun) {
  const std::string lines = "%0 = op aten::arange i4 dtype:int64 layout:strided device false\nreturn %0\n";
  EXPECT_TRUE(results_of(lines, {}, c10::kMeta).front().is_meta());
  EXPECT_TRUE(results_of(lines, {}).front().is_cpu());
}

TEST(Graph, DrawsFromTheDefaultGenerator) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor x = at::ones({100});
  generator.set_current_seed(5);
  const at::Tensor expected = at::dropout(x, 0.5, true);
  generator.set_current_seed(5);
  EXPECT_TRUE(at::equal(results_of("%0 = batch x\n%1 = op aten::dropout %0 f0.5 true\nreturn %1\n", {x}).front(), expected));
}

TEST(Graph, NoGradRegionsAreNotDifferentiated) {
  const std::string lines =
      "%0 = parameter w\n%1 = gradients false\n%2 = op aten::mul.Tensor %0 f3.0\n%3 = gradients true\n"
      "%4 = op aten::mul.Tensor %0 %2\n%5 = op aten::sum %4 default\nreturn %5 %2\n";
  const at::Tensor weight = at::ones({2}).set_requires_grad(true);
  const auto results = results_of(lines, {weight});
  EXPECT_FALSE(results[1].requires_grad());
  results[0].backward();
  EXPECT_TRUE(at::equal(weight.grad(), at::ones({2}) * 3));
  {
    const at::NoGradGuard evaluation;
    EXPECT_FALSE(results_of(lines, {weight})[0].requires_grad());
  }
  EXPECT_THROW(results_of("%0 = batch x\n%1 = gradients false\n%2 = op aten::view %0 [ i7 ]\nreturn %2\n", {weight}),
               c10::Error);
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST(Graph, UnusedValuesAreReleased) {
  const at::Tensor x = at::zeros({4});
  const std::string lines = "%0 = batch x\n%1 = op aten::add.Tensor %0 %0 default\n%2 = op aten::relu_ %1\nreturn %2\n";
  EXPECT_EQ(results_of(lines, {x}).front().use_count(), 1u);
}

TEST(Graph, OperatorErrorsNameTheLine) {
  try {
    results_of("%0 = batch x\n%1 = op aten::view %0 [ i7 ]\nreturn %1\n", {at::zeros({4})});
    FAIL() << "no error";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("g:3: aten::view"), std::string::npos) << error.what();
  }
  EXPECT_THROW(results_of("%0 = batch x\n%1 = op aten::split.Tensor %0 i2 i0\n%2 = get %1 i2\nreturn %2\n", {at::zeros({4})}),
               UsageError);
  EXPECT_THROW(results_of("%0 = compute floordiv i1 i0\nreturn %0\n", {}), UsageError);
  EXPECT_THROW(results_of("%0 = compute add i1 i0\nreturn %0\n", {}), UsageError);  // the result is not a tensor
}

TEST(Graph, AllMissingOperatorsAreNamed) {
  EXPECT_EQ(refusal_of_lines("%0 = batch x\n%1 = op aten::relu %0\n%2 = op aten::no_such %1\n%3 = op mine::op.v2 %2\n"
                             "%4 = op aten::add.NoSuch %3\nreturn %4\n"),
            "g: LibTorch " TORCH_VERSION
            " has no operator aten::add.NoSuch (line 6), aten::no_such (line 4), mine::op.v2 (line 5); export the model with "
            "PyTorch " TORCH_VERSION ", or change it so that it does not use this operator");
}

TEST(Graph, UnsafeOperatorsAreRefusedWithTheirLine) {
  struct Row {
    const char *operator_call, *reason;
  };
  for (const auto& [call, reason] : {
           Row{"aten::from_file s/tmp/never true i4", "takes the text argument 'filename'"},
           Row{"aten::set_.source_Tensor %0 %0", "replaces the memory of a tensor"},
           Row{"aten::set_.source_Storage %0 none", "takes raw storage"},
           Row{"aten::resize_ %0 [ i9 ]", "replaces the memory of a tensor"},
           Row{"aten::_sparse_coo_tensor_unsafe %0 %0 [ i4 ]", "is internal to PyTorch"},
           Row{"aten::_nested_view_from_buffer %0 %0 %0 %0", "is internal to PyTorch"},
           Row{"aten::sparse_coo_tensor.indices %0 %0", "not dense"},
           Row{"aten::_unsafe_index.Tensor %0 [ %0 ]", "is internal to PyTorch"},
           Row{"prim::device %0", "is not one of PyTorch's own operators"},
       }) {
    const std::string found = refusal_of_lines(std::string("%0 = batch x\n%1 = op ") + call + "\nreturn %1\n");
    if (found.find("has no operator") != std::string::npos) continue;  // this LibTorch lacks the operator
    EXPECT_TRUE(found.starts_with("g:3: the operator ")) << call << ": " << found;
    EXPECT_NE(found.find(reason), std::string::npos) << call << ": " << found;
  }
}

TEST(Graph, TextArgumentsThatSelectAnAlgorithmAreAllowed) {
  const at::Tensor x = at::arange(4, at::kFloat);
  const auto results = results_of(
      "%0 = batch x\n%1 = op aten::gelu %0 stanh\n%2 = op aten::div.Tensor_mode %1 f2.0 sfloor\n"
      "%3 = op aten::_softmax %2 i0 false\nreturn %3\n",
      {x});
  EXPECT_EQ(results.front().numel(), 4);
}

TEST(Graph, InternalsOfPublicFunctionsAreAllowed) {
  const at::Tensor x = at::ones({2, 1, 4, 4});
  const auto results = results_of(
      "%0 = batch x\n%1 = op aten::_upsample_nearest_exact2d %0 [ i8 i8 ] none none\n"
      "%2 = op aten::_upsample_bilinear2d_aa %1 [ i2 i2 ] false none none\n%3 = op aten::_unique2 %2 default default default\n"
      "return %2\n",
      {x});
  EXPECT_EQ(results.front().sizes(), at::IntArrayRef({2, 1, 2, 2}));
}

TEST(Graph, WeightNormRefusesAWrongNumberOfMagnitudes) {
  const auto weight_norm = [](at::IntArrayRef weights, at::IntArrayRef magnitudes, const char* dimension) -> std::string {
    const std::string lines =
        std::string("%0 = batch v\n%1 = batch g\n%2 = op aten::_weight_norm %0 %1 ") + dimension + "\nreturn %2\n";
    try {
      results_of(lines, {at::ones(weights), at::ones(magnitudes)});
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(weight_norm({4, 3}, {4, 1}, "i0"), "");
  EXPECT_EQ(weight_norm({4, 3}, {1, 3}, "i1"), "");
  EXPECT_EQ(weight_norm({4, 3, 2}, {1, 3, 1}, "i1"), "");
  EXPECT_EQ(weight_norm({4, 3}, {}, "i-1"), "");
  EXPECT_TRUE(weight_norm({400000, 3}, {1, 1}, "i0").starts_with("g:4: aten::_weight_norm: expected 400000 magnitudes"));
  EXPECT_NE(weight_norm({4, 3}, {0}, "default"), "");
  EXPECT_NE(weight_norm({0, 3}, {4, 1}, "i0"), "") << "divides by 0";
  EXPECT_NE(weight_norm({4, 3}, {4, 1}, "i2"), "");
}

TEST(Graph, SizesAndIntegersOutOfBoundsAreRefusedWithTheirLine) {
  const auto refusal_of_run = [](const std::string& lines) -> std::string {
    try {
      results_of(lines, {at::zeros({4})});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  const std::string most = "i9223372036854775807", least = "i-9223372036854775808";
  for (const std::string& calculation : {"floordiv " + least + " i-1", "add " + most + " i1", "sub " + least + " i1",
                                         "mul " + most + " i2", "neg " + least, "neg " + least}) {
    EXPECT_NE(refusal_of_run("%0 = batch x\n%1 = compute " + calculation + "\nreturn %0\n").find("g:3: "), std::string::npos)
        << calculation;
  }
  EXPECT_EQ(refusal_of_run("%0 = batch x\n%1 = compute mod " + least + " i-1\nreturn %0\n"), "no error");
  EXPECT_NE(refusal_of_run("%0 = batch x\n%1 = op aten::zeros [ i1000000 i1000000 ]\nreturn %1\n")
                .find("g:3: aten::zeros: requests a tensor of more than"),
            std::string::npos);
  EXPECT_NE(refusal_of_run("%0 = batch x\n%1 = op aten::repeat %0 [ " + most + " i2 ]\nreturn %1\n").find("requests a tensor"),
            std::string::npos);
}

TEST(Graph, WrongArgumentsAreRefusedBeforeTheRun) {
  const std::string x = "%0 = batch x\n";
  EXPECT_EQ(refusal_of_lines(x + "%1 = op aten::relu %0 i1\nreturn %1\n"),
            "g:3: passes 2 arguments to aten::relu, which takes at most 1");
  EXPECT_EQ(refusal_of_lines(x + "%1 = op aten::linear %0\nreturn %1\n"), "g:3: argument 'weight' of aten::linear is missing");
  EXPECT_EQ(refusal_of_lines(x + "%1 = op aten::dropout %0 sx true\nreturn %1\n"),
            "g:3: the graph passes a value of another type for argument 'p' of aten::dropout; expected float. Export the model "
            "with PyTorch " TORCH_VERSION ", the version of this program");
  EXPECT_NE(refusal_of_lines(x + "%1 = op aten::view %0 none\nreturn %1\n").find("expected int[]"), std::string::npos);
  EXPECT_NE(refusal_of_lines(x + "%1 = op aten::relu none\nreturn %1\n").find("expected Tensor"), std::string::npos);
  EXPECT_EQ(refusal_of_lines("%0 = op aten::arange i4 dtype:int5\nreturn %0\n"), "g:2: has the unknown dtype 'int5'");
  EXPECT_EQ(refusal_of_lines(x + "%1 = compute power %0 i2\nreturn %1\n"), "g:3: unknown calculation 'power'");
  EXPECT_EQ(refusal_of_lines(x + "%1 = compute add %0\nreturn %1\n"), "g:3: 'add' takes 2 numbers");
  EXPECT_EQ(refusal_of_lines(x + "%1 = batch x\nreturn %1\n"), "g:3: 'x' is defined twice");
}

TEST(GraphText, InvalidTextIsRefusedWithItsLine) {
  EXPECT_EQ(refusal_of_graph(""), "g: has no line 'return': the file is empty or cut off");
  EXPECT_EQ(refusal_of_graph("ddprun graph 2\n"),
            "g:1: expected 'ddprun graph 1': this version of ddprun cannot read the file. Export the model again with its "
            "exporter");
  EXPECT_EQ(refusal_of_lines("%0 = batch x\n"), "g: has no line 'return': the file is empty or cut off");
  EXPECT_EQ(refusal_of_lines("%0 = batch x\nreturn %0"), "g:3: the last line is cut off");
  EXPECT_EQ(refusal_of_lines("%1 = batch x\nreturn %0\n"), "g:2: expected '%0', found '%1'");
  EXPECT_EQ(refusal_of_lines("%0 batch x\nreturn %0\n"), "g:2: expected '=', found 'batch'");
  EXPECT_EQ(refusal_of_lines("%0 = tensor x\nreturn %0\n"),
            "g:2: expected parameter, buffer, constant, batch, op, get, compute or gradients, found 'tensor'");
  EXPECT_EQ(refusal_of_lines("%0 = batch\nreturn %0\n"), "g:2: expected a name, found the end of the line");
  EXPECT_EQ(refusal_of_lines("%0 = batch x i1\nreturn %0\n"),
            "g:2: expected no arguments after a parameter, buffer, constant or batch tensor");
  EXPECT_EQ(refusal_of_lines("%0 = op aten::relu %0\nreturn %0\n"), "g:2: uses %0, which no earlier line defines");
  EXPECT_EQ(refusal_of_lines("%0 = batch x\nreturn %1\n"), "g:3: uses %1, which no earlier line defines");
  EXPECT_EQ(refusal_of_lines("%0 = batch x\nreturn %0\n%1 = batch y\n"), "g:4: expected the end of the file after 'return'");
  EXPECT_EQ(refusal_of_lines("%0 = op aten::relu ?\nreturn %0\n"), "g:2: expected an argument, found '?'");
  EXPECT_EQ(refusal_of_lines("%0 = op aten::relu i1x\nreturn %0\n"), "g:2: expected an argument, found 'i1x'");
  EXPECT_EQ(refusal_of_lines("%0 = op aten::relu i99999999999999999999\nreturn %0\n"),
            "g:2: expected an argument, found 'i99999999999999999999'");
  EXPECT_EQ(refusal_of_lines("%0 = op aten::relu [ i1\nreturn %0\n"), "g:2: expected an argument, found the end of the line");
  EXPECT_EQ(refusal_of_lines("%0 = op aten::relu [ [ [ [ [ ] ] ] ] ]\nreturn %0\n"),
            "g:2: has lists nested 5 deep; expected at most 4");
  EXPECT_EQ(refusal_of_lines("%0 = op aten::relu  i1\nreturn %0\n"), "g:2: expected an argument, found two spaces");
  EXPECT_EQ(refusal_of_lines("%0 = op aten::relu i1 \nreturn %0\n"), "g:2: ends with a space");
  EXPECT_EQ(refusal_of_lines("%0 = batch a%2\nreturn %0\n"), "g:2: 'a%2' has an invalid % escape");
  EXPECT_EQ(refusal_of_lines("%0 = batch x\n%1 = get %0 %0\nreturn %0\n"), "g:3: expected a node and a number after 'get'");
  EXPECT_EQ(refusal_of_lines("%0 = gradients i1\nreturn %0\n"), "g:2: expected true or false after 'gradients'");
  EXPECT_EQ(refusal_of_lines("%0 = batch x\nreturn\n"), "g:3: expected a node, found the end of the line");
}

// A randomly changed graph is either valid or refused with UsageError.
TEST(GraphText, DamagedGraphsAreRefused) {
  const std::string whole =
      "ddprun graph 1\n%0 = parameter w\n%1 = batch x\n%2 = op aten::sym_size.int %1 i0\n%3 = compute mul %2 i2\n"
      "%4 = gradients false\n%5 = op aten::linear %1 %0 none\n%6 = gradients true\n%7 = op aten::view %5 [ %3 i-1 ]\n"
      "%8 = op aten::split.Tensor %7 i1 default\n%9 = get %8 i0\n%10 = op aten::dropout %9 f0.5 true\n"
      "%11 = op aten::empty.memory_format [ i2 ] dtype:int64 layout:strided device false format:contiguous\nreturn %10 %11\n";
  EXPECT_EQ(refusal_of_graph(whole), "no error");
  const std::string letters = "%[]ifs0123456789-:. =\nadrt";
  std::mt19937 draw(7);
  int refused = 0;
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = whole;
    const std::size_t place = draw() % damaged.size();
    switch (draw() % 4) {
      case 0:
        damaged[place] = letters[draw() % letters.size()];
        break;
      case 1:
        damaged.erase(place, 1 + draw() % 3);
        break;
      case 2:
        damaged.insert(place, 1, letters[draw() % letters.size()]);
        break;
      default:
        damaged.resize(place);
    }
    if (refusal_of_graph(damaged) != "no error") ++refused;  // an exception other than UsageError makes the test fail
  }
  EXPECT_GT(refused, 3000);
}

TEST(GraphText, AMissingFileIsNamed) {
  EXPECT_THROW(read_graph("/nowhere/train.graph"), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
