// Tests the task of an exported model: its module, its loss, its metrics, and the error messages for invalid folders.
#include "trainer/exported/exported_task.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/trainer/exported/sample_folder.hpp"

namespace ddprun::trainer {
namespace {

using test::sample_model;
using test::SampleModel;

const Description kSample{.tensors = {{.sizes = {2}}, {.sizes = {1}}}};

class ExportedModels : public ::testing::Test {
 protected:
  std::unique_ptr<Task> task_of(const SampleModel& model) {
    test::write_sample_model(folder_.path(), model);
    TrainConfig config;
    config.model.path = folder_.path();
    return exported_task(config);
  }

  // Returns the error message of make_module() after `change` was applied to the sample model.
  std::string refusal_after(const std::function<void(SampleModel&)>& change, const Description& samples = kSample) {
    SampleModel model = sample_model();
    change(model);
    try {
      task_of(model)->make_module(samples, c10::kCPU);
    } catch (const UsageError& error) {
      std::string text = error.what();
      const std::string path = folder_.path().string() + "/";
      for (std::size_t at = text.find(path); at != std::string::npos; at = text.find(path)) text.erase(at, path.size());
      return text;
    }
    return "no error";
  }

  ddprun::test::TemporaryFolder folder_;
};

Batch sample_batch() {
  return {.tensors = {at::arange(4, at::kFloat).view({2, 2}), at::zeros({2, 1})}, .weight = 2};
}

TEST_F(ExportedModels, TheModuleKeepsPythonsNamesOrderTiesAndFreezing) {
  const auto module = task_of(sample_model())->make_module(kSample, c10::kCPU);
  const auto parameters = module->named_parameters();
  ASSERT_EQ(parameters.keys(), (std::vector<std::string>{"scale", "net.w", "net.v"}));
  EXPECT_FALSE(parameters["scale"].requires_grad());
  EXPECT_TRUE(parameters["net.w"].requires_grad());
  EXPECT_TRUE(parameters["net.v"].is_same(parameters["net.w"]));
  ASSERT_EQ(module->named_buffers().keys(), std::vector<std::string>{"net.seen"});
  EXPECT_TRUE(module->is_training());
}

TEST_F(ExportedModels, LossAndMetricsComeFromTheGraphs) {
  const auto task = task_of(sample_model());
  const auto module = task->make_module(kSample, c10::kCPU);
  EXPECT_EQ(task->figures(), (std::vector<std::string>{"loss", "largest"}));
  // The samples are x = (0, 1) and (2, 3), and w = v = (0.5, 0.5). So out = 2 * (0.5 + 0.5) * (0 + 1) = 2 for the first sample,
  // and 10 for the second; y is 0.
  const at::Tensor loss = task->loss(*module, sample_batch());
  EXPECT_EQ(loss.item<float>(), 52.0F);
  loss.backward();
  // out = 2 s (x . w), because w is used twice. So d loss / d w is the mean of 2 out * 4 x.
  const at::Tensor gradient = module->named_parameters()["net.w"].grad();
  EXPECT_EQ(gradient[0][0].item<float>(), (2 * 2 * 4 * 0 + 2 * 10 * 4 * 2) / 2.0F);
  EXPECT_EQ(gradient[0][1].item<float>(), (2 * 2 * 4 * 1 + 2 * 10 * 4 * 3) / 2.0F);
  EXPECT_EQ(module->named_buffers()["net.seen"].item<std::int64_t>(), 1);

  Figures figures(task->figures(), c10::kCPU);
  task->measure(*module, sample_batch(), figures);
  EXPECT_EQ(figures.sums_and_weights(), (std::vector<double>{104, 2, 20, 2}));
  EXPECT_EQ(module->named_buffers()["net.seen"].item<std::int64_t>(), 1);
}

TEST_F(ExportedModels, TheCheckedBatchHasNoSideEffects) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(9);
  const at::Tensor before = generator.get_state();
  const auto module = task_of(sample_model())->make_module(kSample, c10::kCPU);
  EXPECT_TRUE(at::equal(before, generator.get_state()));
  EXPECT_EQ(module->named_buffers()["net.seen"].item<std::int64_t>(), 0);
  EXPECT_FALSE(module->named_parameters()["net.w"].grad().defined());
}

TEST_F(ExportedModels, AnotherModelHasAnotherFingerprint) {
  const std::string one = task_of(sample_model())->fingerprint();
  EXPECT_EQ(task_of(sample_model())->fingerprint(), one);
  SampleModel other = sample_model();
  other.init[0].tensor = other.init[0].tensor * 2;
  EXPECT_NE(task_of(other)->fingerprint(), one);
  EXPECT_EQ(one.size(), 32u);
}

TEST_F(ExportedModels, DataOfAnotherShapeIsRefused) {
  EXPECT_EQ(refusal_after([](SampleModel&) {}, {.tensors = {{.sizes = {3}}, {.sizes = {1}, .type = at::kLong}}}),
            folder_.path().string() +
                ": the model takes x float32 [2], y float32 [1], but a sample of the data is float32 [3], int64 [1]. "
                "Export the model with a batch of this data");
}

TEST_F(ExportedModels, ADifferentCheckedBatchIsRefused) {
  const auto differs = [](const std::string& what) {
    return "check.safetensors: the model's results for the batch in this file differ from those at export: " + what;
  };
  EXPECT_TRUE(refusal_after([](SampleModel& model) {
                model.check[2].tensor = model.check[2].tensor + 1;
              }).starts_with(differs("the training loss is ")));
  EXPECT_TRUE(
      refusal_after([](SampleModel& model) { model.check[3].tensor = model.check[3].tensor * 1.0000001; })
          .starts_with(differs(
              "the gradient of 'net.w' is not bit-identical to the value that the exporter computed (with the same PyTorch ")));
  EXPECT_TRUE(refusal_after([](SampleModel& model) {
                model.check[4].tensor = model.check[4].tensor + 1;
              }).starts_with(differs("the buffer 'net.seen' is not bit-identical to the value that the exporter computed")));
  EXPECT_TRUE(refusal_after([](SampleModel& model) {
                model.check[6].tensor = model.check[6].tensor + 1;
              }).starts_with(differs("the largest of the evaluation is 26; the exporter computed 27")));
  EXPECT_TRUE(refusal_after([](SampleModel& model) {
                model.check.erase(model.check.begin() + 3);
              }).starts_with(differs("the parameter 'net.w' has a gradient, but had none at export")));
}

TEST_F(ExportedModels, OnAnotherCpuTheCheckedBatchMayDifferByRounding) {
  const auto elsewhere = [](SampleModel& model) { model.model_json["check"]["cpu"] = "another"; };
  EXPECT_EQ(refusal_after([&](SampleModel& model) {
              elsewhere(model);
              model.check[2].tensor = model.check[2].tensor * 1.00001;
              model.check[3].tensor = model.check[3].tensor * 1.001;
            }),
            "no error");
  EXPECT_NE(refusal_after([&](SampleModel& model) {
              elsewhere(model);
              model.check[2].tensor = model.check[2].tensor * 1.001;
            }).find("the training loss is "),
            std::string::npos);
  EXPECT_NE(refusal_after([&](SampleModel& model) {
              elsewhere(model);
              model.check[3].tensor = model.check[3].tensor * 1.1;
            }).find(" in the 2-norm (with PyTorch "),
            std::string::npos);
}

TEST_F(ExportedModels, MismatchedFilesAreRefused) {
  EXPECT_EQ(refusal_after([](SampleModel& model) { model.init.erase(model.init.begin()); }),
            "init.safetensors: has no tensor 'parameter.net.w'");
  EXPECT_EQ(refusal_after([](SampleModel& model) {
              model.init[0].tensor = at::zeros({2, 2});
            }),
            "init.safetensors: 'parameter.net.w' is float32 [2, 2]; expected float32 [1, 2], as in model.json");
  EXPECT_EQ(refusal_after([](SampleModel& model) {
              model.init[0].tensor = at::zeros({1, 2}, at::kDouble);
            }),
            "init.safetensors: 'parameter.net.w' is float64 [1, 2]; expected float32 [1, 2], as in model.json");
  EXPECT_EQ(refusal_after([](SampleModel& model) { model.model_json["batch"].erase(1); }),
            "train.graph: takes the tensor 'y', which model.json does not list");
  EXPECT_EQ(refusal_after([](SampleModel& model) { model.model_json["outputs"] = {"loss"}; }),
            "eval.graph: returns 2 tensors; expected 1 for the outputs in model.json");
}

TEST_F(ExportedModels, ErrorsInModelJsonAreNamed) {
  const auto after = [this](const char* pointer, const nlohmann::json& value) {
    return refusal_after([&](SampleModel& model) { model.model_json[nlohmann::json::json_pointer(pointer)] = value; });
  };
  EXPECT_EQ(after("/format", 2),
            "model.json: has format 2, but this version reads format 1; export the model again with this version's exporter");
  EXPECT_EQ(after("/reduction", "sum"), "model.json: reduction: expected 'mean', found 'sum'");
  EXPECT_EQ(after("/outputs", {"accuracy"}), "model.json: outputs: expected 'loss' as the first output");
  EXPECT_EQ(after("/parameters", 5), "model.json: parameters: expected an array");
  EXPECT_EQ(after("/parameters/1/dtype", "float5"), "model.json: parameters[1].dtype: unknown dtype 'float5'");
  EXPECT_EQ(after("/parameters/1/dtype", "float64"),
            "model.json: parameters[1]: the trained parameter 'net.w' has dtype float64; expected float32");
  EXPECT_EQ(after("/parameters/1/shape/0", -1), "model.json: parameters[1].shape[0]: expected a whole number of 0 or more");
  EXPECT_EQ(after("/parameters/2/tied", "absent"), "model.json: parameters[2].tied: no earlier parameter is named 'absent'");
  EXPECT_EQ(after("/parameters/2/name", "scale"), "model.json: parameters[2]: 'scale' is listed twice");
  EXPECT_EQ(after("/check", nlohmann::json::object()), "model.json: check: has no 'seed'");
  EXPECT_EQ(after("/batch", nlohmann::json::array()), "model.json: batch: has no tensors");
  EXPECT_NE(refusal_after([](SampleModel& model) {
              model.model_json["buffers"].push_back(model.model_json["buffers"][0]);
              model.model_json["buffers"][1]["name"] = "net..seen";
              model.init.push_back({"buffer.net..seen", at::zeros({}, at::kLong)});
            }).find("invalid tensor name 'net..seen'"),
            std::string::npos);
}

TEST_F(ExportedModels, BestByMustNameAMetricOfTheModel) {
  test::write_sample_model(folder_.path(), sample_model());
  TrainConfig config;
  config.model.path = folder_.path();
  config.checkpoint.keep_best = 1;
  const std::vector<std::string> figures = exported_task(config)->figures();
  try {
    require_metrics(config, figures);
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(),
                 "checkpoint.keep_best uses the metric 'accuracy' (checkpoint.best_by), which the evaluation of this model "
                 "does not report; its metrics are loss, largest");
  }
  config.checkpoint.best_by = "loss";
  EXPECT_NO_THROW(require_metrics(config, figures));
}

TEST_F(ExportedModels, AnAbsentFolderIsNamed) {
  TrainConfig config;
  config.model.path = folder_ / "none";
  EXPECT_THROW(exported_task(config), UsageError);
}

}  // namespace
}  // namespace ddprun::trainer
