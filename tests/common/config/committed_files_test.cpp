// Tests that the committed files in configs/ and docs/ match the code. With DDPRUN_REGENERATE=1 the tests write the generated
// parts instead of comparing them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/config/keys.hpp"
#include "common/config/parse_config.hpp"
#include "common/config/schema.hpp"
#include "tests/common/temporary_folder.hpp"
#include "tests/repository.hpp"

namespace ddprun {
namespace {

using test::read_text;
using test::write_text;

const std::filesystem::path kSource = test::repository();
constexpr const char* kHowToRegenerate = "run the unit tests of common/ once with DDPRUN_REGENERATE=1 in the environment";

bool regenerating() {
  return std::getenv("DDPRUN_REGENERATE") != nullptr;
}

TEST(CommittedFiles, SchemaMatchesTheKeyTable) {
  const auto file = kSource / "configs/train.schema.json";
  if (regenerating()) write_text(file, config_schema_json());
  EXPECT_EQ(read_text(file), config_schema_json()) << kHowToRegenerate;
}

TEST(CommittedFiles, ReferenceMatchesTheKeyTable) {
  const auto file = kSource / "docs/configuration.md";
  const std::string begin = "<!-- begin -->\n", end = "<!-- end -->";
  std::string page = read_text(file);
  const std::size_t first = page.find(begin) + begin.size(), last = page.find(end);
  ASSERT_NE(last, std::string::npos);
  if (regenerating()) write_text(file, page.replace(first, last - first, "\n" + config_reference_markdown() + "\n"));
  page = read_text(file);
  EXPECT_EQ(page.substr(first, page.find(end) - first), "\n" + config_reference_markdown() + "\n") << kHowToRegenerate;
}

TEST(CommittedFiles, EveryConfigLoads) {
  int loaded = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kSource / "configs")) {
    if (entry.path().extension() != ".json" || entry.path().stem().extension() == ".schema") continue;
    SCOPED_TRACE(entry.path());
    const TrainConfig config = load_config(entry.path());
    EXPECT_EQ(config.name, entry.path().stem());
    EXPECT_EQ(to_json_text(parse_config(to_json_text(config), "again", "/")), to_json_text(config));
    ++loaded;
  }
  EXPECT_GE(loaded, 3);
}

TEST(CommittedFiles, DemoMatchesItsDescription) {
  const TrainConfig config = load_config(kSource / "configs/fashion-mnist.json");
  EXPECT_EQ(config.model.type, ModelConfig::Type::kCnn);
  EXPECT_EQ(config.data.dir, "/usr/share/datasets/fashion-mnist");
  EXPECT_EQ(config.epochs, 3);
  EXPECT_EQ(config.batch_size, 128);
  EXPECT_EQ(config.optimizer.lr, 2e-3);
  EXPECT_EQ(config.schedule.type, ScheduleConfig::Type::kCosine);
  EXPECT_EQ(config.checkpoint.every_steps, 100);
}

// Checks the schema without a schema library. The schema must have every key of the table with its default, and every object
// must refuse other keys.
TEST(Schema, HasEveryKeyAndClosesEveryObject) {
  const auto schema = nlohmann::json::parse(config_schema_json());
  EXPECT_TRUE(schema.at("properties").contains("$schema"));
  EXPECT_EQ(schema.at("required"), nlohmann::json({"data"}));
  for (const Key& key : config_keys()) {
    SCOPED_TRACE(key.dotted());
    const nlohmann::json* at = &schema;
    std::string rest = key.dotted() + ".";
    for (std::size_t dot; (dot = rest.find('.')) != std::string::npos; rest.erase(0, dot + 1)) {
      EXPECT_EQ(at->at("additionalProperties"), false);
      at = &at->at("properties").at(rest.substr(0, dot));
    }
    EXPECT_EQ(at->value("x-may-change", false), key.may_change);
    EXPECT_TRUE(at->contains("default") || key.required || !key.default_text.empty());
  }
}

TEST(Schema, KeysOfOneTypeDependOnTheType) {
  const auto schema = nlohmann::json::parse(config_schema_json());
  EXPECT_EQ(schema.at("properties").at("optimizer").at("dependentSchemas").at("momentum"),
            nlohmann::json::parse(R"({"properties": {"type": {"enum": ["sgd"]}}, "required": ["type"]})"));
  EXPECT_EQ(schema.at("properties").at("optimizer").at("dependentSchemas").at("betas"),
            nlohmann::json::parse(R"({"properties": {"type": {"enum": ["adamw", "adam", "lion"]}}})"))
      << "adamw is the default";
}

// Each default must itself be a value that the parser accepts.
TEST(Keys, EveryDefaultIsAccepted) {
  for (const Key& key : config_keys()) {
    if (key.required) continue;
    EXPECT_TRUE(accepts(key.kind, key.get(TrainConfig{}))) << key.dotted();
  }
}

TEST(Keys, SetAndGetAreTheSameMember) {
  for (const Key& key : config_keys()) {
    TrainConfig config;
    const nlohmann::json before = key.get(config);
    nlohmann::json other;
    if (before.is_boolean()) {
      other = !before.get<bool>();
    } else if (const auto* names = std::get_if<NameKind>(&key.kind)) {
      other = names->names.back();
    } else if (before.is_string()) {
      other = "other";
    } else if (std::holds_alternative<TextListKind>(key.kind)) {
      other = {"a", "b"};
    } else if (std::holds_alternative<ParameterGroupsKind>(key.kind)) {
      other = {{{"parameters", "a"}, {"lr_scale", 0.5}, {"weight_decay", 0.25}}};
    } else if (before.is_array()) {
      other = nlohmann::json::array({before.at(0), before.at(0)});
    } else if (std::holds_alternative<IntegerKind>(key.kind) && before.is_null()) {
      other = 3;
    } else {
      other = before.is_number_integer() ? nlohmann::json(before.get<std::int64_t>() + 1)
                                         : nlohmann::json(accepts(key.kind, 0.75) ? 0.75 : 1.5);
    }
    ASSERT_TRUE(accepts(key.kind, other)) << key.dotted();
    key.set(config, other);
    EXPECT_EQ(key.get(config), other) << key.dotted();
    for (const Key& unchanged : config_keys()) {
      if (unchanged.dotted() == key.dotted()) continue;
      EXPECT_EQ(unchanged.get(config), unchanged.get(TrainConfig{})) << unchanged.dotted();
    }
  }
}

}  // namespace
}  // namespace ddprun
