// Tests that keys of a custom worker program are read, refused, printed and compared like built-in keys.
#include "common/config/task_keys.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "common/base/error.hpp"
#include "common/config/parse_config.hpp"
#include "common/config/schema.hpp"

namespace ddprun {
namespace {

using Integers = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

std::vector<TaskKey> table() {
  return {{.name = "deep", .value = false, .help = "More layers."},
          {.name = "width", .value = 32, .help = "Units of a layer.", .min = 1, .max = 4096},
          {.name = "noise", .value = 0.5, .help = "Its deviation.", .min = 0, .max = 1, .below_max = true},
          {.name = "target", .value = "price", .help = "Column to learn."},
          {.name = "loss", .value = "square", .help = "Kind of error.", .choices = {"square", "absolute"}},
          {.name = "words", .value = "words.txt", .help = "A list.", .path = true, .may_change = true},
          {.name = "sizes", .value = Integers{8, 4}, .help = "Sizes of layers.", .min = 1},
          {.name = "columns", .value = Texts{"a"}, .help = "To learn from."}};
}

TrainConfig read(const std::string& task, const std::vector<std::string>& overrides = {},
                 const std::vector<TaskKey>& keys = table()) {
  return parse_config(R"({"data": {"dir": "d"}, "worker": "bin/mine", "task": )" + task + "}", "t.json", "/base", overrides,
                      nullptr, [&](const std::string&) { return TaskConfig(keys); });
}

std::string refusal(const std::string& task, const std::vector<std::string>& overrides = {}) {
  try {
    read(task, overrides);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TaskKeys, HaveDefaultsOrConfiguredValues) {
  const TaskConfig plain = read("{}").task;
  EXPECT_FALSE(plain.flag("deep"));
  EXPECT_EQ(plain.integer("width"), 32);
  EXPECT_EQ(plain.number("noise"), 0.5);
  EXPECT_EQ(plain.text("target"), "price");
  EXPECT_EQ(plain.text("words"), "/base/words.txt") << "a path counts from the config, also a default";
  EXPECT_EQ(plain.integers("sizes"), (Integers{8, 4}));
  EXPECT_EQ(plain.texts("columns"), (Texts{"a"}));
  const TaskConfig configured =
      read(R"({"deep": true, "width": 1e2, "noise": 0, "loss": "absolute", "sizes": [3], "columns": []})",
           {"task.target=2024", "task.words=../w"})
          .task;
  EXPECT_TRUE(configured.flag("deep"));
  EXPECT_EQ(configured.integer("width"), 100);
  EXPECT_EQ(configured.number("noise"), 0);
  EXPECT_EQ(configured.text("loss"), "absolute");
  EXPECT_EQ(configured.text("target"), "2024") << "a string, as in the table";
  EXPECT_EQ(configured.text("words"), "/w");
  EXPECT_EQ(configured.integers("sizes"), (Integers{3}));
  EXPECT_TRUE(configured.texts("columns").empty());
}

TEST(TaskKeys, AreValidatedLikeBuiltInKeys) {
  EXPECT_EQ(refusal(R"({"widht": 3})"), "t.json:1:55: unknown key 'widht' (/task/widht). Did you mean 'width'?");
  EXPECT_EQ(refusal(R"({"width": 0})"), "t.json:1:64: expected an integer from 1 to 4096, found 0 (/task/width)");
  EXPECT_EQ(refusal(R"({"noise": 1})"), "t.json:1:64: expected a number from 0 to below 1, found 1 (/task/noise)");
  EXPECT_EQ(refusal(R"({"loss": "sqare"})"),
            R"(t.json:1:63: expected "square" or "absolute", found "sqare" (/task/loss). Did you mean 'square'?)");
  EXPECT_EQ(refusal("{}", {"task.deep=1"}), "override 'task.deep=1': expected true or false, found 1 (/task/deep)");
  EXPECT_EQ(refusal("3"), "t.json:1:54: expected an object in braces, found 3 (/task)");
}

TEST(TaskKeys, RequiredKeyMustBeSet) {
  const std::vector<TaskKey> keys{{.name = "target", .value = "", .help = "Column to learn.", .required = true}};
  EXPECT_THROW(
      {
        try {
          read("{}", {}, keys);
        } catch (const UsageError& error) {
          EXPECT_NE(std::string(error.what()).find("key 'task.target' is missing: Column to learn. (/task/target)"),
                    std::string::npos)
              << error.what();
          throw;
        }
      },
      UsageError);
  EXPECT_EQ(read(R"({"target": "y"})", {}, keys).task.text("target"), "y");
}

TEST(TaskKeys, NeedAWorkerProgram) {
  const std::string text = R"({"data": {"dir": "d"}, "task": {"width": 3}})";
  try {
    parse_config(text, "t.json", "/base");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(
        std::string(error.what())
            .find(R"(unknown key 'task' (/task). Only a custom worker program has keys in this section: set the key "worker")"),
        std::string::npos)
        << error.what();
  }
}

TEST(TaskKeys, ComeFromTheConfiguredProgram) {
  std::vector<std::string> named;
  const TaskKeysOf keys = [&](const std::string& worker) {
    named.push_back(worker);
    return TaskConfig();
  };
  parse_config(R"({"data": {"dir": "d"}, "worker": "mine"})", "t", "/base/a", {}, nullptr, keys);
  parse_config(R"({"data": {"dir": "d"}})", "t", "/base", {}, nullptr, keys);
  parse_config(R"({"data": {"dir": "d"}, "worker": "mine"})", "t", "/base", {"worker=../other"}, nullptr, keys);
  EXPECT_EQ(named, (Texts{"/base/a/mine", "", "/other"}));
}

TEST(TaskKeys, PrintedConfigRoundTrips) {
  const TrainConfig config = read(R"({"width": 5, "words": "w"})");
  const auto again = parse_config(to_json_text(config), "again", "/elsewhere", {}, nullptr,
                                  [&](const std::string&) { return config.task.defaults(); });
  EXPECT_EQ(to_json_text(again), to_json_text(config));
  EXPECT_EQ(nlohmann::json::parse(to_json_text(config)).at("task").at("width"), 5);
  EXPECT_EQ(again.worker, "/base/bin/mine");
  EXPECT_EQ(config_digest(again), config_digest(config));
  const auto differences = compare_configs(config, read(R"({"width": 6, "words": "v"})"));
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0].pointer, "/task/width");
  EXPECT_FALSE(differences[0].may_change);
  EXPECT_EQ(differences[1].pointer, "/task/words");
  EXPECT_TRUE(differences[1].may_change);
  EXPECT_NE(config_digest(config), config_digest(read(R"({"width": 6, "words": "w"})")));
  EXPECT_EQ(config_digest(config), config_digest(read(R"({"width": 5, "words": "v"})")));
  std::vector<TaskKey> fewer = table();
  fewer.erase(fewer.begin());
  EXPECT_EQ(config_digest(read("{}")), config_digest(read("{}", {}, fewer))) << "a key that came later, with its default";
}

TEST(TaskKeys, InvalidTableErrorNamesTheKey) {
  const auto fault = [](const TaskKey& key) -> std::string {
    try {
      TaskConfig({{.name = "good", .value = 1, .help = "Fine."}, key});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(fault({.name = "good", .value = 2, .help = "Again."}),
            "key 'good' of the worker program's table: it is defined twice");
  EXPECT_EQ(fault({.name = "width", .value = 0, .help = "W.", .min = 1, .max = 9}),
            "key 'width' of the worker program's table: expected a default that is an integer from 1 to 9, found 0");
  for (const TaskKey& wrong : {TaskKey{.name = "a.b", .value = 1, .help = "H."}, TaskKey{.name = "", .value = 1, .help = "H."},
                               TaskKey{.name = "a", .value = 1, .help = ""}, TaskKey{.name = "a", .value = 1, .help = "a\nb"},
                               TaskKey{.name = "a", .value = true, .help = "H.", .min = 1},
                               TaskKey{.name = "a", .value = 1, .help = "H.", .choices = {"b"}},
                               TaskKey{.name = "a", .value = "c", .help = "H.", .choices = {"b"}},
                               TaskKey{.name = "a", .value = 1.0, .help = "H.", .min = 2, .max = 1}}) {
    EXPECT_NE(fault(wrong).find("of the worker program's table: "), std::string::npos) << fault(wrong);
  }
}

TEST(TaskKeys, WrongTypeOrNameIsAnInternalError) {
  const TaskConfig task(table());
  EXPECT_THROW((void)task.number("width"), InternalError);
  EXPECT_THROW((void)task.integer("widht"), InternalError);
}

TEST(TaskKeys, AppearInSchemaAndHelp) {
  const auto schema = nlohmann::json::parse(config_schema_json(TaskConfig(table())));
  const auto& task = schema.at("properties").at("task");
  EXPECT_EQ(task.at("additionalProperties"), false);
  EXPECT_EQ(task.at("properties").at("width"),
            nlohmann::json::parse(
                R"({"description": "Units of a layer.", "type": "integer", "minimum": 1, "maximum": 4096, "default": 32})"));
  EXPECT_EQ(nlohmann::json::parse(config_schema_json()).at("properties").at("task").at("type"), "object");
  EXPECT_NE(task_keys_help(TaskConfig(table()))
                .find("  task.width: an integer from 1 to 4096; default 32\n      Units of a layer.\n"),
            std::string::npos);
  EXPECT_EQ(task_keys_help({}), "");
}

}  // namespace
}  // namespace ddprun
