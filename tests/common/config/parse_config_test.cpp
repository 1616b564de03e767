// Tests which train.json is valid, and the exact message for each error.
#include "common/config/parse_config.hpp"

#include <gtest/gtest.h>

#include "common/base/error.hpp"
#include "tests/common/temporary_folder.hpp"

namespace ddprun {
namespace {

using Overrides = std::vector<std::string>;

TrainConfig parsed(const std::string& text, const Overrides& overrides = {}) {
  return parse_config(text, "train.json", "/base", overrides);
}

// Returns the error message for the config in `text`; "no error" if the config is valid.
std::string refused_config(const std::string& text, const Overrides& overrides = {}) {
  try {
    parsed(text, overrides);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}
std::string refusal_of_keys(const std::string& keys, const Overrides& overrides = {}) {
  return refused_config("{\"data\": {\"dir\": \"d\"},\n" + keys + "}", overrides);
}
std::string refusal_of_override(const std::string& override_text) {
  return refusal_of_keys("\"epochs\": 3", {override_text});
}

TEST(ParseConfig, UnexpandedShellPathIsRefused) {
  for (const std::string path : {"~/data", "~", "$HOME/data"}) {
    try {
      parse_config(R"({"data": {"dir": ")" + path + R"("}})", "train.json", "/", {});
      ADD_FAILURE() << path;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("not expanded here, found \"" + path + "\" (/data/dir)"), std::string::npos)
          << error.what();
    }
  }
}

TEST(ParseConfig, TenThousandErrorsAreReportedTogether) {
  constexpr int kMistakes = 10'000;
  std::string unknown;
  for (int i = 0; i < kMistakes; ++i) unknown += (i == 0 ? "\"k" : ", \"k") + std::to_string(i) + "\": 1";
  const std::string refusal = refusal_of_keys(unknown);
  EXPECT_EQ(refusal.substr(0, refusal.find("\n  train.json:2:10: ")),
            "10000 errors in the config:\n  train.json:2:1: unknown key 'k0' (/k0).");
  EXPECT_TRUE(refusal.ends_with("\n  and 9950 more"));
  std::string twice = "\"seed\": 0";
  for (int i = 0; i < kMistakes; ++i) twice += ", \"seed\": 1";
  EXPECT_NE(refusal_of_keys(twice).find("train.json:2:12: key 'seed' is given twice (/seed); first at 2:1\n"),
            std::string::npos);
}

TEST(ParseConfig, ControlCharactersAreEscapedInMessages) {
  EXPECT_EQ(refusal_of_keys(R"("\u001b[31mred\n": 1)"),
            "train.json:2:1: unknown key '\\u001b[31mred\\u000a' (/\\u001b[31mred\\u000a).");
  EXPECT_EQ(refusal_of_override("\x1b[31m=1").find('\x1b'), std::string::npos);
}

TEST(ParseConfig, EndOfDocumentIsATokenOrNull) {
  const auto parsed = [](const std::string& end) {
    return parse_config(R"({"model": {"type": "gpt"}, "data": {"dir": "d", "type": "tokens", "end_of_document": )" + end + "}}",
                        "train.json", "/base")
        .data.end_of_document;
  };
  EXPECT_EQ(parsed("null"), std::nullopt);
  EXPECT_EQ(parsed("0"), 0);
  EXPECT_THROW(parsed("-1"), UsageError);
  EXPECT_THROW(parsed("50257"), UsageError);
}

TEST(ParseConfig, OutOfRangeNumbersAreShownAsWritten) {
  EXPECT_EQ(refusal_of_keys("\"epochs\": 99999999999999999999999"),
            "train.json:2:11: expected an integer from 1 to 1000000000, found 99999999999999999999999 (/epochs)");
  EXPECT_EQ(
      refusal_of_keys("\"optimizer\": {\"lr\": 1e-400}"),
      "train.json:2:21: expected a number above 0, found 1e-400, which is so close to 0 that it rounds to 0 (/optimizer/lr)");
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"lr\": 0.0e5}"),
            "train.json:2:21: expected a number above 0, found 0.0e5 (/optimizer/lr)");
  EXPECT_EQ(refusal_of_keys("\"epochs\": " + std::string(100, '9')),
            "train.json:2:11: expected an integer from 1 to 1000000000, found " + std::string(60, '9') +
                "... (100 characters) (/epochs)");
  EXPECT_EQ(refusal_of_override("epochs=99999999999999999999999"),
            "override 'epochs=99999999999999999999999': expected an integer from 1 to 1000000000, found "
            "99999999999999999999999 (/epochs)");
  EXPECT_EQ(refusal_of_override("optimizer.lr=1e999"),
            "override 'optimizer.lr=1e999': expected a number above 0, found 1e999, which is too large: the maximum is about "
            "1.8e308 (/optimizer/lr)");
  EXPECT_NE(refusal_of_override("seed=-1e999").find(", found -1e999, which is too large"), std::string::npos);
  EXPECT_NE(refusal_of_override("optimizer.betas=[0.9,1e999]").find(", found [0.9,1e999], which is too large"),
            std::string::npos);
  EXPECT_NE(refusal_of_override("optimizer=1e999").find("expected an object in braces, found 1e999"), std::string::npos);
  EXPECT_NE(refusal_of_override("data.ledger=1e999").find("expected true or false, found 1e999"), std::string::npos);
  EXPECT_EQ(parsed(R"({"data": {"dir": "d"}})", {"name=1e999"}).name, "1e999");
}

TEST(ParseConfig, ZeroByteInAStringIsReported) {
  EXPECT_EQ(refused_config(R"({"data": {"dir": "/tmp\u0000b"}})"),
            "train.json:1:18: expected a string without a null character, \\u0000, found \"/tmp\\u0000b\" (/data/dir)");
}

TEST(ParseConfig, OnlyTheDataFolderIsRequired) {
  const TrainConfig config = parsed(R"({"data": {"dir": "d"}})");
  TrainConfig expected;
  expected.data.dir = "/base/d";
  expected.optimizer.weight_decay = 0.01;  // the default weight decay of AdamW
  EXPECT_EQ(to_json_text(config), to_json_text(expected));
}

TEST(ParseConfig, EveryKindOfValue) {
  const TrainConfig config = parsed(R"(// comments and $schema are fine
    {"$schema": "train.schema.json", /* here too */
     "name": "a.b-c_1", "seed": 9007199254740992, "epochs": 1e1,
     "model": {"type": "mlp", "hidden": [64, 32], "init": "w.safetensors"},
     "data": {"dir": "/data//set/", "mean": 0.5, "std": 0.25, "ledger": true, "augment": {"crop_padding": 2, "flip": true}},
     "optimizer": {"betas": [0.8, 0.9], "lr": 1}, "device": "cpu"})");
  EXPECT_EQ(config.name, "a.b-c_1");
  EXPECT_EQ(config.seed, 1ull << 53);
  EXPECT_EQ(config.epochs, 10);
  EXPECT_EQ(config.model.type, ModelConfig::Type::kMlp);
  EXPECT_EQ(config.model.hidden, (std::vector<std::int64_t>{64, 32}));
  EXPECT_EQ(config.model.init, "/base/w.safetensors");
  EXPECT_EQ(config.data.dir, "/data/set");
  EXPECT_EQ(config.data.mean, 0.5);
  EXPECT_EQ(config.data.std, 0.25);
  EXPECT_TRUE(config.data.ledger);
  EXPECT_EQ(config.data.augment.crop_padding, 2);
  EXPECT_TRUE(config.data.augment.flip);
  EXPECT_EQ(config.optimizer.betas, (std::array<double, 2>{0.8, 0.9}));
  EXPECT_EQ(config.optimizer.lr, 1.0);
  EXPECT_EQ(config.device, TrainConfig::Device::kCpu);
}

TEST(ParseConfig, WeightDecayDependsOnTheOptimizerUnlessGiven) {
  EXPECT_EQ(parsed(R"({"data": {"dir": "d"}, "optimizer": {"type": "adamw"}})").optimizer.weight_decay, 0.01);
  EXPECT_EQ(parsed(R"({"data": {"dir": "d"}, "optimizer": {"type": "sgd"}})").optimizer.weight_decay, 0.0);
  EXPECT_EQ(parsed(R"({"data": {"dir": "d"}, "optimizer": {"weight_decay": 0}})").optimizer.weight_decay, 0.0);
  EXPECT_EQ(parsed(R"({"data": {"dir": "d"}})", {"optimizer.type=sgd"}).optimizer.weight_decay, 0.0);
  EXPECT_EQ(parsed(R"({"data": {"dir": "d"}})", {"optimizer.type=adam"}).optimizer.weight_decay, 0.0);
}

TEST(ParseConfig, ParameterGroupsAndFrozenParameters) {
  const TrainConfig config = parsed(R"({"data": {"dir": "d"}, "model": {"freeze": ["layer1.*", "stem"]}, "optimizer":
    {"groups": [{"parameters": "*.bias", "weight_decay": 0}, {"parameters": "head.*", "lr_scale": 10}]}})");
  EXPECT_EQ(config.model.freeze, (std::vector<std::string>{"layer1.*", "stem"}));
  ASSERT_EQ(config.optimizer.groups.size(), 2u);
  EXPECT_EQ(config.optimizer.groups[0].parameters, "*.bias");
  EXPECT_EQ(config.optimizer.groups[0].weight_decay, 0.0);
  EXPECT_EQ(config.optimizer.groups[0].lr_scale, 1.0);
  EXPECT_EQ(config.optimizer.groups[1].weight_decay, std::nullopt);
  EXPECT_EQ(config.optimizer.groups[1].lr_scale, 10.0);
  EXPECT_EQ(parsed(R"({"data": {"dir": "d"}})", {R"(optimizer.groups=[{"parameters": "b"}])", R"(model.freeze=["a"])"})
                .optimizer.groups.size(),
            1u);
}

TEST(ParseConfig, UnnamedColumnCanBeLeftOut) {
  EXPECT_EQ(parsed(R"({"data": {"type": "csv", "dir": "d", "target": "y", "leave_out": [""]}, "model": {"type": "mlp"}})")
                .data.leave_out,
            std::vector<std::string>{""});
}

TEST(ParseConfig, InvalidParameterGroups) {
  const auto refusal = [](const std::string& groups) { return refusal_of_keys(R"("optimizer": {"groups": )" + groups + "}"); };
  EXPECT_TRUE(refusal("3").starts_with("train.json:2:25: expected an array of up to 1000 objects such as")) << refusal("3");
  EXPECT_EQ(refusal("[{}]"),
            "train.json:2:26: key 'parameters' is missing: set it to a pattern of parameter names, such as \"*.bias\" "
            "(/optimizer/groups/0)");
  EXPECT_EQ(refusal(R"([{"parameters": "a"}, {"parameters": "b", "lr_scael": 2}])"),
            "train.json:2:79: unknown key 'lr_scael'. Did you mean 'lr_scale'? (/optimizer/groups/1/lr_scael)");
  EXPECT_EQ(refusal(R"([{"parameters": "a", "weight_decay": -1}])"),
            "train.json:2:62: expected a number of at least 0, found -1 (/optimizer/groups/0/weight_decay)");
  EXPECT_TRUE(refusal(R"([{"parameters": ""}])").find("expected a pattern of parameter names") != std::string::npos);
  EXPECT_EQ(refusal_of_keys(R"("model": {"freeze": [1]})"),
            "train.json:2:21: expected an array of up to 1000 strings, found [1] (/model/freeze)");
}

TEST(ParseConfig, OneCycleRefusesWarmup) {
  EXPECT_EQ(refusal_of_keys(R"("schedule": {"type": "one_cycle", "warmup_steps": 3})"),
            "train.json:2:51: expected 0 or no value, since schedule type \"one_cycle\" has its own warm-up: set pct_start "
            "instead (/schedule/warmup_steps)");
}

TEST(ParseConfig, CustomBestMetricNeedsBestIs) {
  EXPECT_EQ(refusal_of_keys(R"("checkpoint": {"best_by": "f1"})"),
            "train.json:2:27: expected a metric name that ends in 'accuracy' or 'loss', found \"f1\": for this metric, also "
            "set checkpoint.best_is to \"highest\" or \"lowest\" (/checkpoint/best_by)");
  for (const char* good :
       {R"({"best_by": "f1", "best_is": "highest"})", R"({"best_by": "top5_accuracy"})", R"({"best_by": "loss"})"}) {
    EXPECT_NO_THROW(parsed(R"({"data": {"dir": "d"}, "checkpoint": )" + std::string(good) + "}")) << good;
  }
}

TEST(ParseConfig, UnknownKeys) {
  EXPECT_EQ(refusal_of_keys("  \"optimzer\": {\"lr\": 1}"),
            "train.json:2:3: unknown key 'optimzer' (/optimzer). Did you mean 'optimizer'?");
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"learning_rate\": 1}"),
            "train.json:2:15: unknown key 'learning_rate' (/optimizer/learning_rate). In ddprun it is 'optimizer.lr'.");
  EXPECT_EQ(refusal_of_keys("\"momentum\": 0.9"),
            "train.json:2:1: unknown key 'momentum' (/momentum). Did you mean 'optimizer.momentum'?");
  EXPECT_EQ(refusal_of_keys("\"optimizer.lr\": 0.9"),
            "train.json:2:1: unknown key 'optimizer.lr' (/optimizer.lr). Write it as \"optimizer\": {\"lr\": ...}.");
  EXPECT_EQ(refusal_of_keys("\"\": 1"), "train.json:2:1: unknown key '' (/).");
  EXPECT_EQ(refusal_of_keys("\"log\": {\"$schema\": \"x\"}"), "train.json:2:9: unknown key '$schema' (/log/$schema).");
}

TEST(ParseConfig, WrongTypes) {
  EXPECT_EQ(refusal_of_keys("\"epochs\": \"3\""),
            "train.json:2:11: expected an integer from 1 to 1000000000, found the string \"3\" (/epochs)");
  EXPECT_EQ(refusal_of_keys("\"epochs\": 1.5"),
            "train.json:2:11: expected an integer from 1 to 1000000000, found 1.5 (/epochs)");
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"lr\": \"fast\"}"),
            "train.json:2:21: expected a number above 0, found the string \"fast\" (/optimizer/lr)");
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"lr\": null}"),
            "train.json:2:21: expected a number above 0, found null (/optimizer/lr)");
  EXPECT_EQ(refusal_of_keys("\"log\": {\"tensorboard\": 1}"),
            "train.json:2:24: expected true or false, found 1 (/log/tensorboard)");
  EXPECT_EQ(refusal_of_keys("\"model\": \"cnn\""), "train.json:2:10: expected an object in braces, found \"cnn\" (/model)");
  EXPECT_EQ(refusal_of_keys("\"name\": {}"),
            "train.json:2:9: expected a name of letters, digits, '.', '_' and '-', starting with a letter, digit or '_', found "
            "an object (/name)");
  EXPECT_EQ(refused_config("{\"data\": {\"dir\": \"\"}}"),
            "train.json:1:18: expected a string that is not empty, found \"\" (/data/dir)");
  EXPECT_EQ(refused_config("[1]"), "train.json:1:1: expected an object in braces, found [1]");
}

TEST(ParseConfig, ValuesOutOfRange) {
  EXPECT_EQ(refusal_of_keys("\"batch_size\": 0"),
            "train.json:2:15: expected an integer from 1 to 1000000000, found 0 (/batch_size)");
  EXPECT_EQ(refusal_of_keys("\"seed\": -1"),
            "train.json:2:9: expected an integer from 0 to 9007199254740992, found -1 (/seed)");
  EXPECT_EQ(refusal_of_keys("\"seed\": 18446744073709551615"),
            "train.json:2:9: expected an integer from 0 to 9007199254740992, found 18446744073709551615 (/seed)");
  EXPECT_EQ(refusal_of_keys("\"label_smoothing\": 1"),
            "train.json:2:20: expected a number from 0 to below 1, found 1 (/label_smoothing)");
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"lr\": 0}"),
            "train.json:2:21: expected a number above 0, found 0 (/optimizer/lr)");
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"betas\": [0.9]}"),
            "train.json:2:24: expected an array of two numbers, each from 0 to below 1, found [0.9] (/optimizer/betas)");
  EXPECT_EQ(refusal_of_keys("\"model\": {\"type\": \"mlp\", \"hidden\": []}"),
            "train.json:2:36: expected an array of 1 to 1000 integers, each from 1 to 1000000000, found [] (/model/hidden)");
  EXPECT_EQ(refusal_of_keys("\"checkpoint\": {\"local_dir\": \"copies\"}"),
            "train.json:2:29: expected the absolute path of a folder on each node's own disk, found \"copies\" "
            "(/checkpoint/local_dir)");
  EXPECT_EQ(refusal_of_keys("\"checkpoint\": {\"every\": \"auto\", \"every_steps\": 5}"),
            "train.json:2:48: expected 0 or no value, since \"every\": \"auto\" chooses the interval: remove this key, or "
            "set \"every\": \"given\" (/checkpoint/every_steps)");
  EXPECT_EQ(refusal_of_keys("\"checkpoint\": {\"keep\": 0}"),
            "train.json:2:24: expected an integer from 1 to 1000000000, found 0 (/checkpoint/keep)");
}

TEST(ParseConfig, RunNamesOutsideTheFolderAreRefused) {
  for (const std::string name : {"", ".", "..", "a/b", "-x", "a b", "\xC3\xA9"}) {
    EXPECT_NE(refusal_of_keys("\"name\": \"" + name + "\"").find("expected a name of letters"), std::string::npos) << name;
  }
}

TEST(ParseConfig, UnknownNames) {
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"type\": \"adamv\"}"),
            "train.json:2:23: expected \"sgd\", \"adamw\", \"adam\" or \"lion\", found \"adamv\" (/optimizer/type). Did you "
            "mean 'adamw'?");
  EXPECT_EQ(refusal_of_keys("\"model\": {\"type\": \"perceptron\"}"),
            "train.json:2:19: expected \"mlp\", \"cnn\", \"resnet18\", \"resnet34\", \"resnet50\", \"resnet20\", \"resnet56\", "
            "\"exported\", \"gpt\", \"llama\", \"vit\" or \"auto\", found \"perceptron\" (/model/type)");
}

TEST(ParseConfig, MixupAlphaIsWithinBounds) {
  EXPECT_EQ(refusal_of_override("data.augment.mixup=-0.1"),
            "override 'data.augment.mixup=-0.1': expected a number from 0 to 1000, found -0.1 (/data/augment/mixup)");
  EXPECT_EQ(refusal_of_override("data.augment.mixup=1001"),
            "override 'data.augment.mixup=1001': expected a number from 0 to 1000, found 1001 (/data/augment/mixup)");
}

TEST(ParseConfig, VitHeadsHaveEqualWidth) {
  EXPECT_EQ(refusal_of_keys(R"("model": {"type": "vit", "n_embd": 10, "n_head": 4})"),
            "train.json:2:36: expected a multiple of n_head, which is 4, found 10 (/model/n_embd)");
  EXPECT_EQ(refusal_of_keys(R"("model": {"type": "vit", "patch_size": 0})"),
            "train.json:2:40: expected an integer from 1 to 4096, found 0 (/model/patch_size)");
  EXPECT_EQ(refusal_of_keys(R"("model": {"type": "cnn", "patch_size": 4})"),
            "train.json:2:26: key 'patch_size' is for model type \"vit\" only, found type \"cnn\" (/model/patch_size)");
}

TEST(ParseConfig, HeadsOfALlamaMayHaveAnyEvenWidth) {
  const auto llama = [](const std::string& keys) {
    return refused_config(R"({"data": {"type": "tokens", "dir": "d"}, "model": {"type": "llama", )" + keys + "}}");
  };
  EXPECT_EQ(llama(R"("n_embd": 50, "n_head": 4, "head_dim": 10)"), "no error");
  EXPECT_NE(llama(R"("n_embd": 50, "n_head": 4, "head_dim": 9)").find("expected an even number, found 9 (/model/head_dim)"),
            std::string::npos);
  EXPECT_NE(llama(R"("n_embd": 50, "n_head": 4)").find("expected a multiple of 2 * n_head"), std::string::npos);
  EXPECT_NE(llama(R"("rope_scaling": "llama3", "rope_high_freq_factor": 1)")
                .find("expected a number above rope_low_freq_factor, which is 1.0, found 1.0 (/model/rope_high_freq_factor)"),
            std::string::npos);
  EXPECT_EQ(llama(R"("rope_scaling": "llama3", "attention_bias": "qkv", "qk_norm": true)"), "no error");
}

TEST(ParseConfig, KeysOfAnotherType) {
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"type\": \"adamw\", \"momentum\": 0.9}"),
            "train.json:2:32: key 'momentum' is for optimizer type \"sgd\" only, found type \"adamw\" (/optimizer/momentum)");
  EXPECT_EQ(refusal_of_keys("\"model\": {\"hidden\": [5]}"),
            "train.json:2:11: key 'hidden' is for model type \"mlp\" only, found type \"cnn\" (the default) (/model/hidden)");
  EXPECT_EQ(
      refusal_of_keys("\"model\": {\"type\": \"resnet18\", \"dropout\": 0.1}"),
      "train.json:2:31: key 'dropout' is for model type \"mlp\" or \"cnn\" or \"gpt\" or \"vit\" only, found type \"resnet18\" "
      "(/model/dropout)");
  EXPECT_EQ(refusal_of_keys("\"schedule\": {\"type\": \"step\", \"final_factor\": 0}"),
            "train.json:2:30: key 'final_factor' is for schedule type \"cosine\" or \"linear\" or \"polynomial\" or "
            "\"warmup_stable_decay\" only, found type \"step\" (/schedule/final_factor)");
}

TEST(ParseConfig, WrongTypeNameDoesNotBlameItsKeys) {
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"type\": \"sdg\", \"momentum\": 0.9}"),
            "train.json:2:23: expected \"sgd\", \"adamw\", \"adam\" or \"lion\", found \"sdg\" (/optimizer/type). Did you mean "
            "'sgd'?");
}

TEST(ParseConfig, RulesBetweenKeys) {
  EXPECT_EQ(refusal_of_keys("\"batch_size\": 64, \"micro_batch_size\": 128"),
            "train.json:2:39: expected at most batch_size, which is 64, found 128 (/micro_batch_size)");
  EXPECT_EQ(refusal_of_keys("\"optimizer\": {\"type\": \"sgd\", \"nesterov\": true}"),
            "train.json:2:42: nesterov requires a momentum above 0, found 0: set momentum, or remove nesterov "
            "(/optimizer/nesterov)");
  EXPECT_EQ(refused_config("{\"data\": {\"dir\": \"d\", \"mean\": 0.5}}"),
            "train.json:1:23: 'mean' is set without 'std': set both, or neither (/data/mean)");
  EXPECT_EQ(refused_config("{\"data\": {\"dir\": \"d\", \"std\": 0.5, \"mean\": null}}"),
            "train.json:1:23: 'std' is set without 'mean': set both, or neither (/data/std)");
}

TEST(ParseConfig, MissingKeys) {
  EXPECT_EQ(refused_config("{}"),
            "train.json:1:1: key 'data.dir' is missing: Folder with the data files, relative to the config file. (/data/dir)");
  EXPECT_EQ(refused_config("{\n \"data\": {}}"),
            "train.json:2:2: key 'data.dir' is missing: Folder with the data files, relative to the config file. (/data/dir)");
  EXPECT_EQ(refused_config("{\"data\": 1}"), "train.json:1:10: expected an object in braces, found 1 (/data)");
}

TEST(ParseConfig, DuplicateKeysAndSyntax) {
  EXPECT_EQ(refusal_of_keys("\"epochs\": 1,\n\"epochs\": 2"),
            "train.json:3:1: key 'epochs' is given twice (/epochs); first at 2:1");
  EXPECT_EQ(refusal_of_keys("\"epochs\": 1,"),
            "train.json:2:13: expected a key in double quotes after ',', found '}': remove the ',' before it");
}

TEST(ParseConfig, AllErrorsAreReportedTogetherInTheOrderOfTheFile) {
  EXPECT_EQ(
      refused_config("{\n\"epoch\": 3,\n\"batch_size\": 0,\n\"optimizer\": {\"lr\": -1}}", {"seed=x"}),
      "5 errors in the config:\n"
      "  train.json:1:1: key 'data.dir' is missing: Folder with the data files, relative to the config file. (/data/dir)\n"
      "  train.json:2:1: unknown key 'epoch' (/epoch). Did you mean 'epochs'?\n"
      "  train.json:3:15: expected an integer from 1 to 1000000000, found 0 (/batch_size)\n"
      "  train.json:4:21: expected a number above 0, found -1 (/optimizer/lr)\n"
      "  override 'seed=x': expected an integer from 0 to 9007199254740992, found the string \"x\" (/seed)");
}

TEST(ParseConfig, ManyErrorsAreCounted) {
  std::string text = "{\"data\": {\"dir\": \"d\"}";
  for (int i = 0; i < 60; ++i) text += ", \"unknown" + std::to_string(i) + "\": 1";
  const std::string message = refused_config(text + "}");
  EXPECT_TRUE(message.starts_with("60 errors in the config:\n")) << message;
  EXPECT_TRUE(message.ends_with("\n  and 10 more")) << message;
}

TEST(Overrides, ReplaceAndAdd) {
  const TrainConfig config = parsed(R"({"data": {"dir": "d"}, "epochs": 3, "optimizer": {"lr": 1}})",
                                    {"optimizer.lr=0.5", "optimizer.lr=1e-2", "model.type=mlp", "model.hidden=[64,64]",
                                     "name=2024", "data.dir=x=y", "log.tensorboard=false", "data.augment.flip=true"});
  EXPECT_EQ(config.optimizer.lr, 0.01) << "the last one wins";
  EXPECT_EQ(config.model.type, ModelConfig::Type::kMlp);
  EXPECT_EQ(config.model.hidden, (std::vector<std::int64_t>{64, 64}));
  EXPECT_EQ(config.name, "2024") << "a string is wanted, so it is one";
  EXPECT_EQ(config.data.dir, "/base/x=y");
  EXPECT_FALSE(config.log.tensorboard);
  EXPECT_TRUE(config.data.augment.flip);
  EXPECT_EQ(config.epochs, 3);
}

TEST(Overrides, MayReplaceASection) {
  const TrainConfig config =
      parsed(R"({"data": {"dir": "d"}, "optimizer": {"betas": [0, 0]}})", {R"(optimizer={"type": "sgd", "momentum": 0.9})"});
  EXPECT_EQ(config.optimizer.momentum, 0.9);
  EXPECT_EQ(config.optimizer.betas[0], 0.9);
}

TEST(Overrides, NewTypeDropsKeysOfTheOldType) {
  const auto notes_for = [](const std::string& keys, const std::vector<std::string>& overrides) {
    std::vector<std::string> notes;
    parse_config(R"({"data": {"dir": "d"}, )" + keys + "}", "t.json", "/base", overrides, &notes);
    return notes;
  };
  const std::string steps = R"("schedule": {"type": "step", "step_epochs": 2, "gamma": 0.5, "warmup_steps": 7})";
  EXPECT_EQ(notes_for(steps, {"schedule.type=constant"}),
            (std::vector<std::string>{
                "override schedule.type=constant: ignoring the keys in the file for type \"step\": schedule.step_epochs, "
                "schedule.gamma"}));
  EXPECT_EQ(notes_for(steps, {"schedule.type=step"}), std::vector<std::string>{});
  EXPECT_EQ(notes_for(steps, {"epochs=2"}), std::vector<std::string>{});
  const TrainConfig config = parsed(R"({"data": {"dir": "d"}, )" + steps + "}", {"schedule.type=constant"});
  EXPECT_EQ(config.schedule.warmup_steps, 7) << "goes with every type";
  EXPECT_EQ(config.schedule.gamma, TrainConfig{}.schedule.gamma);
  // Errors in overrides are always reported, together with the errors of the file.
  EXPECT_THROW(parsed(R"({"data": {"dir": "d"}, )" + steps + "}", {"schedule.type=constant", "schedule.gamma=0.1"}),
               UsageError);
  EXPECT_THROW(parsed(R"({"data": {"dir": "d"}, "schedule": {"type": "constant", "gamma": 0.5}})", {"schedule.type=linear"}),
               UsageError);
}

TEST(Overrides, RepairTheFile) {
  EXPECT_EQ(parsed(R"({"data": {"dir": "d"}, "epochs": "x"})", {"epochs=2"}).epochs, 2);
}

TEST(Overrides, ErrorsNameTheOverride) {
  EXPECT_EQ(refusal_of_override("epochs"), "override 'epochs': expected KEY=VALUE, for example optimizer.lr=0.01");
  EXPECT_EQ(refusal_of_override("=3"), "override '=3': expected KEY=VALUE, for example optimizer.lr=0.01");
  EXPECT_EQ(refusal_of_override("optimizer..lr=3"),
            "override 'optimizer..lr=3': expected a name before and after each dot, found 'optimizer..lr'");
  EXPECT_EQ(refusal_of_override("optimzer.lr=3"),
            "override 'optimzer.lr=3': unknown key 'optimzer' (/optimzer). Did you mean 'optimizer'?");
  EXPECT_EQ(refusal_of_override("optimizer.lr=fast"),
            "override 'optimizer.lr=fast': expected a number above 0, found the string \"fast\" (/optimizer/lr)");
  EXPECT_EQ(refusal_of_override("optimizer=3"), "override 'optimizer=3': expected an object in braces, found 3 (/optimizer)");
  EXPECT_EQ(refusal_of_override("epochs.x=3"), "override 'epochs.x=3': expected an object at /epochs, found 3");
  EXPECT_EQ(refusal_of_override("model.hidden=[1]"),
            "override 'model.hidden=[1]': key 'hidden' is for model type \"mlp\" only, found type \"cnn\" (the default) "
            "(/model/hidden)");
  EXPECT_EQ(refusal_of_override("name=\xff"), "override '...': expected UTF-8");
}

TEST(Overrides, ReplacedFilePositionIsNotReported) {
  EXPECT_EQ(
      refusal_of_keys("\"model\": {\"type\": \"cnn\"}", {R"(model={"type": "x"})"}),
      R"(override 'model={"type": "x"}': expected "mlp", "cnn", "resnet18", "resnet34", "resnet50", "resnet20", "resnet56", "exported", "gpt", "llama", "vit" or "auto", found "x" (/model/type))");
}

TEST(LoadConfig, PathsAreRelativeToTheFile) {
  const test::TemporaryFolder folder;
  test::write_text(folder / "a/train.json", R"({"data": {"dir": "../set"}, "model": {"init": "w"}})");
  const TrainConfig config = load_config(folder / "a/train.json");
  EXPECT_EQ(config.data.dir, (folder / "set").string());
  EXPECT_EQ(config.model.init, (folder / "a/w").string());
}

TEST(LoadConfig, FilesThatCannotBeRead) {
  const test::TemporaryFolder folder;
  const auto message = [](const std::filesystem::path& file) -> std::string {
    try {
      load_config(file);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message(folder / "none.json"),
            "cannot read config " + (folder / "none.json").string() + ": No such file or directory");
  EXPECT_EQ(message(folder.path()), folder.path().string() + " is a folder, expected a config file");
  test::write_text(folder / "large.json", std::string(5 << 20, ' '));
  EXPECT_EQ(message(folder / "large.json"), "config " + (folder / "large.json").string() +
                                                " is larger than 4 MiB, the maximum for a config file: check the path");
  test::write_text(folder / "empty.json", "");
  EXPECT_EQ(message(folder / "empty.json"), (folder / "empty.json").string() + ":1:1: expected '{', found the end of the file");
}

TEST(ParseConfig, ExportedModelsAndTensors) {
  const std::string exported = R"({"model": {"type": "exported", "path": "m.ddp"}, "data": {"type": "tensors", "dir": "d"}})";
  const TrainConfig config = parsed(exported);
  EXPECT_EQ(config.model.type, ModelConfig::Type::kExported);
  EXPECT_EQ(config.model.path, "/base/m.ddp");
  EXPECT_EQ(config.data.type, DataConfig::Type::kTensors);
  EXPECT_EQ(config.data.train, "train.safetensors");
  EXPECT_EQ(config.data.test, "test.safetensors");
  EXPECT_EQ(config_digest(parsed(exported, {"model.path=elsewhere"})), config_digest(config));
  EXPECT_NE(config_digest(parsed(exported, {"data.train=other"})), config_digest(config));
}

TEST(ParseConfig, KeysRefusedWithExportedModelsOrTensors) {
  EXPECT_EQ(refusal_of_keys(R"("model": {"type": "exported"})"),
            "train.json:2:1: key 'model.path' is missing: set it to the folder that python3 -m ddprun.export wrote "
            "(/model/path)");
  EXPECT_EQ(refusal_of_keys(R"("model": {"type": "mlp", "path": "m.ddp"})"),
            "train.json:2:26: key 'path' is for model type \"exported\" only, found type \"mlp\" (/model/path)");
  const std::string exported = R"("model": {"type": "exported", "path": "m.ddp"}, )";
  EXPECT_EQ(refusal_of_keys(exported + R"("label_smoothing": 0.1)"),
            "train.json:2:68: expected 0 or no value with an exported model, which contains its own loss: for label "
            "smoothing, change the loss in build() and export the model again (/label_smoothing)");
  EXPECT_EQ(refusal_of_keys(exported + R"("precision": "bf16")"),
            "train.json:2:62: expected \"fp32\" or \"tf32\" with an exported model, found \"bf16\" (/precision)");
  EXPECT_EQ(refusal_of_keys(exported + R"("channels_last": true)"),
            "train.json:2:66: expected false or no value with an exported model, which contains its own memory layout "
            "(/channels_last)");
  EXPECT_EQ(
      refused_config(R"({"data": {"type": "tensors", "dir": "d"}})"),
      "train.json:1:19: data.type \"tensors\" is for model type \"exported\" only, found model type \"cnn\": use \"idx\", "
      "\"cifar10\", \"cifar100\", \"folder\", \"table\", \"csv\", \"arrays\" or \"synthetic\" (/data/type)");
  const std::string tensors = R"({"model": {"type": "exported", "path": "m"}, "data": {"type": "tensors", "dir": "d", )";
  EXPECT_EQ(
      refused_config(tensors + R"("classes": 3}})"),
      "train.json:1:86: key 'classes' is for data type \"idx\" or \"csv\" or \"arrays\" or \"folder\" or \"synthetic\" only, "
      "found type \"tensors\" (/data/classes)");
  for (const char* augment : {R"("augment": {"flip": true}}})", R"("augment": {"mixup": 0.2}}})"}) {
    EXPECT_EQ(refused_config(tensors + augment),
              "train.json:1:86: only images can be augmented, found data.type \"tensors\" (/data/augment)");
  }
}

TEST(ParseConfig, KeysRefusedWithTablesFoldersOrValidation) {
  const auto csv = [](const std::string& more) {
    return refused_config(R"({"model": {"type": "mlp"}, "data": {"type": "csv", "dir": "d")" + more);
  };
  EXPECT_EQ(csv("}}"), "no error");
  EXPECT_EQ(
      refused_config(R"({"data": {"type": "csv", "dir": "d"}})"),
      "train.json:1:1: expected \"mlp\", since the samples of data.type \"csv\" are not images, found \"cnn\" (/model/type)");
  EXPECT_EQ(csv(R"(, "class_names": ["a"]}})"), "train.json:1:79: expected at least 2 names, found 1 (/data/class_names)");
  EXPECT_EQ(csv(R"(, "class_names": ["a", "b", "c", "b"]}})"),
            "train.json:1:79: expected a different name for each class, found \"b\" for classes 1 and 3 (/data/class_names)");
  EXPECT_EQ(csv(R"(, "predict": "number", "class_names": ["a", "b"]}})"),
            "train.json:1:100: expected no value, since data.predict is \"number\" and such targets have no classes "
            "(/data/class_names)");
  EXPECT_EQ(csv(R"(, "predict": "number"}, "label_smoothing": 0.1})"),
            "train.json:1:105: expected 0 or no value, since data.predict is \"number\" and such targets are not labels "
            "(/label_smoothing)");
  EXPECT_EQ(csv(R"(}, "channels_last": true})"),
            "train.json:1:82: expected false or no value, since the samples of this data have no channels (/channels_last)");
  EXPECT_EQ(csv(R"(, "augment": {"flip": true}}})"),
            "train.json:1:64: only images can be augmented, found data.type \"csv\" (/data/augment)");
  EXPECT_EQ(csv(R"(, "augment": {"erase": 0.1}}})"),
            "train.json:1:85: this key is for data.type \"folder\" only, found data.type \"csv\" (/data/augment/erase)");
  EXPECT_EQ(refused_config(R"({"data": {"type": "folder", "dir": "d", "image_size": 64, "resize": 32}})"),
            "train.json:1:69: expected 0 or at least image_size, which is 64, found 32 (/data/resize)");
  EXPECT_EQ(refused_config(R"({"data": {"dir": "d", "validation": {"fraction": 0.1, "samples": 3}}})"),
            "train.json:1:23: expected either 'fraction' or 'samples', found both: remove one of them (/data/validation)");
}

TEST(ParseConfig, SyntheticDataNeedsNoFolderAndRefusesUnusedKeys) {
  const TrainConfig config = parsed(R"({"data": {"type": "synthetic"}})");
  EXPECT_EQ(config.data.type, DataConfig::Type::kSynthetic);
  EXPECT_EQ(config.data.shape, (std::vector<std::int64_t>{1, 28, 28}));
  const auto of = [](const std::string& model, const std::string& more) {
    return refused_config(R"({"model": {"type": ")" + model + R"("}, "data": {"type": "synthetic")" + more);
  };
  for (const char* model : {"mlp", "cnn", "resnet18", "vit", "gpt", "llama"}) EXPECT_EQ(of(model, "}}"), "no error");
  EXPECT_EQ(of("mlp", R"(, "shape": [5], "predict": "number"}})"), "no error");
  EXPECT_EQ(of("gpt", R"(, "block_size": 8, "vocab_size": 9}})"), "no error");
  EXPECT_EQ(
      of("mlp", R"(, "dir": "d"}})"),
      "train.json:1:58: key 'dir' is for data type \"idx\" or \"cifar10\" or \"cifar100\" or \"tensors\" or \"tokens\" or "
      "\"csv\" or \"arrays\" or \"folder\" or \"table\" only, found type \"synthetic\" (/data/dir)");
  EXPECT_EQ(of("mlp", R"(, "block_size": 8}})"),
            "train.json:1:58: key 'block_size' is for model type \"gpt\" or \"llama\" only, found \"mlp\" (/data/block_size)");
  EXPECT_EQ(of("gpt", R"(, "shape": [5]}})"),
            "train.json:1:58: key 'shape' is for other model types than \"gpt\" and \"llama\", found \"gpt\" (/data/shape)");
  EXPECT_EQ(of("gpt", R"(, "predict": "number"}})"),
            "train.json:1:58: key 'predict' is for other model types than \"gpt\" and \"llama\", found \"gpt\" "
            "(/data/predict)");
  EXPECT_EQ(of("mlp", R"(, "shape": [100000, 100000]}})"),
            "train.json:1:67: expected at most 100,000,000 numbers per sample (the product of these sizes), found more "
            "(/data/shape)");
  EXPECT_EQ(
      of("resnet18", R"(, "shape": [64]}})"),
      "train.json:1:72: expected 3 sizes (channels, height and width) with model type \"resnet18\", found 1 (/data/shape)");
  EXPECT_EQ(of("mlp", R"(, "train_samples": 1000000000}})"),
            "train.json:1:75: expected at most 100,000,000 samples for data.type \"synthetic\", found 1000000000 "
            "(/data/train_samples)");
  EXPECT_EQ(of("mlp", R"(}, "channels_last": true})"), "no error");
  EXPECT_EQ(of("mlp", R"(, "predict": "number"}, "label_smoothing": 0.1})"),
            "train.json:1:99: expected 0 or no value, since data.predict is \"number\" and such targets are not labels "
            "(/label_smoothing)");
  EXPECT_EQ(of("mlp", R"(, "augment": {"flip": true}}})"),
            "train.json:1:58: only images can be augmented, found data.type \"synthetic\" (/data/augment)");
  EXPECT_EQ(refused_config(R"({"data": {"type": "synthetc"}})").find("data.dir"), std::string::npos);
  EXPECT_EQ(refused_config(R"({"model": {"type": "mlp"}, "data": {"type": "csv"}})"),
            "train.json:1:28: key 'data.dir' is missing: Folder with the data files, relative to the config file. (/data/dir)");
}

TEST(PrintConfig, RoundTripsExactly) {
  for (const Overrides& overrides : std::vector<Overrides>{
           {},
           {"model.type=mlp", "model.dropout=0.1", "model.init=w", "data.mean=0.1307", "data.std=0.30000000000000004"},
           {"optimizer.type=sgd", "optimizer.momentum=0.9", "optimizer.nesterov=true", "optimizer.lr=5e-324"},
           {"schedule.type=cosine", "schedule.final_factor=0.3333333333333333", "seed=9007199254740992", "device=cuda"},
           {"schedule.type=step", "model.type=resnet18", "name=a", "clip_grad_norm=1e308"},
           {"schedule.type=plateau", "schedule.metric=accuracy", "optimizer.ema.decay=0.9", "early_stopping.patience=2"},
           {"optimizer.type=adam", "schedule.type=one_cycle", "schedule.div_factor=3", "model.freeze=[\"a*\"]"},
           {"optimizer.groups=[{\"parameters\": \"a\", \"weight_decay\": 0.3}, {\"parameters\": \"b\", \"lr_scale\": 0}]"}}) {
    const TrainConfig config = parsed(R"({"data": {"dir": "d"}})", overrides);
    const TrainConfig again = parse_config(to_json_text(config), "config.json", "/elsewhere");
    EXPECT_EQ(to_json_text(again), to_json_text(config));
    EXPECT_TRUE(compare_configs(config, again).empty());
    EXPECT_EQ(config_digest(again), config_digest(config));
    EXPECT_EQ(again.optimizer.lr, config.optimizer.lr);
    EXPECT_EQ(again.data.std, config.data.std);
  }
}

TEST(CompareConfigs, NamesPointerAndBothValues) {
  const TrainConfig before = parsed(R"({"data": {"dir": "d"}, "epochs": 3, "optimizer": {"lr": 0.1}})");
  const TrainConfig after = parsed(R"({"data": {"dir": "d"}, "epochs": 5, "optimizer": {"lr": 0.2}})");
  const auto differences = compare_configs(before, after);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].pointer, "/epochs");
  EXPECT_EQ(differences[0].before, "3");
  EXPECT_EQ(differences[0].after, "5");
  EXPECT_TRUE(differences[0].may_change);
  EXPECT_EQ(differences[1].pointer, "/optimizer/lr");
  EXPECT_EQ(differences[1].before, "0.1");
  EXPECT_FALSE(differences[1].may_change);
}

TEST(CompareConfigs, AnotherTypeIsOneDifference) {
  const auto differences = compare_configs(parsed(R"({"data": {"dir": "d"}})", {"schedule.type=step"}),
                                           parsed(R"({"data": {"dir": "d"}})", {"schedule.type=cosine"}));
  ASSERT_EQ(differences.size(), 1u);
  EXPECT_EQ(differences[0].pointer, "/schedule/type");
}

// The collectives of a run depend on these keys. With different values, one node would wait in a collective that another node
// never calls.
TEST(CompareConfigs, JobWideKeysMustBeEqualOnAllNodes) {
  const std::string text = R"({"data": {"dir": "d"}})";
  const auto job_wide = [&](const std::string& change) {
    const auto differences = compare_configs(parsed(text), parsed(text, {change}));
    return differences.size() == 1 && differences[0].job_wide;
  };
  for (const char* change : {"epochs=9", "max_steps=5", "eval_every_epochs=2", "eval_every_steps=7", "log.every_steps=3",
                             "checkpoint.every_steps=7", "checkpoint.keep_best=1", "ddp.compare_every_steps=9",
                             "early_stopping.patience=3", "channels_last=true", "seed=1", "optimizer.ema.decay=0.9"}) {
    EXPECT_TRUE(job_wide(change)) << change;
  }
  for (const char* change : {"data.dir=e", "checkpoint.local_dir=/scratch", "data.prefetch=9", "data.loader_threads=3",
                             "micro_batch_size=8", "eval_batch_size=7", "device=cuda", "checkpoint.keep=9"}) {
    EXPECT_FALSE(job_wide(change)) << change;
  }
}

TEST(ConfigDigest, ChangesOnlyWithFixedKeys) {
  const std::string text = R"({"data": {"dir": "d"}})";
  const std::string digest = config_digest(parsed(text));
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(digest.find_first_not_of("0123456789abcdef"), std::string::npos);
  for (const std::string free :
       {"epochs=9", "max_steps=5", "checkpoint.every_steps=7", "checkpoint.keep=9", "log.every_steps=3", "eval_batch_size=7",
        "eval_every_epochs=2", "data.prefetch=9", "data.loader_threads=3", "data.ledger=true", "ddp.timeout_s=5",
        "micro_batch_size=8", "data.dir=e", "device=cuda", "deterministic=true", "eval_every_steps=7",
        "checkpoint.best_by=loss", "early_stopping.patience=3"}) {
    EXPECT_EQ(config_digest(parsed(text, {free})), digest) << free;
  }
  for (const std::string fixed :
       {"batch_size=64", "seed=1", "optimizer.lr=1", "optimizer.type=sgd", "model.type=mlp", "data.classes=11",
        "ddp.bucket_mb=1", "label_smoothing=0.1", "clip_grad_value=1", "model.freeze=[\"a\"]",
        "optimizer.groups=[{\"parameters\": \"a\"}]", "optimizer.ema.decay=0.9", "schedule.type=plateau"}) {
    EXPECT_NE(config_digest(parsed(text, {fixed})), digest) << fixed;
  }
}

// The digest is the name of the folder for a node's local checkpoints. Therefore a new key must not change the digest of
// configs that do not set the key.
TEST(ConfigDigest, EqualsThatOfEarlierVersions) {
  EXPECT_EQ(config_digest(parsed(R"({"data": {"dir": "d"}})")), "12a2b386d1f8c30d40a1ac50f66034a5");
}

}  // namespace
}  // namespace ddprun
