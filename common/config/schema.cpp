// Implementation of schema.hpp. The tests call these functions. The committed schema and the reference are generated with them
// too.
#include "common/config/schema.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/base/overloaded.hpp"
#include "common/config/keys.hpp"

namespace ddprun {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson names_json(const std::vector<std::string_view>& names) {
  OrderedJson out = OrderedJson::array();
  for (const std::string_view name : names) out.push_back(name);
  return out;
}

OrderedJson kind_schema(const Kind& kind) {
  return std::visit(Overloaded{[](const BoolKind&) -> OrderedJson {
                                 return {{"type", "boolean"}};
                               },
                               [](const IntegerKind& k) -> OrderedJson {
                                 const OrderedJson type = k.nullable ? OrderedJson{"integer", "null"} : OrderedJson("integer");
                                 return {{"type", type}, {"minimum", k.min}, {"maximum", k.max}};
                               },
                               [](const NumberKind& k) {
                                 OrderedJson out;
                                 out["type"] = k.nullable ? OrderedJson{"number", "null"} : OrderedJson("number");
                                 if (std::isfinite(k.min)) out[k.above_min ? "exclusiveMinimum" : "minimum"] = k.min;
                                 if (std::isfinite(k.max)) out[k.below_max ? "exclusiveMaximum" : "maximum"] = k.max;
                                 return out;
                               },
                               [](const TextKind& k) {
                                 OrderedJson out{{"type", "string"}};
                                 if (k.name_only) {
                                   out["pattern"] = kNamePattern;
                                 } else if (!k.may_be_empty) {
                                   out["minLength"] = 1;
                                 }
                                 return out;
                               },
                               [](const NameKind& k) -> OrderedJson {
                                 return {{"enum", names_json(k.names)}};
                               },
                               [](const IntegerListKind& k) -> OrderedJson {
                                 return {{"type", "array"},
                                         {"items", {{"type", "integer"}, {"minimum", k.min}, {"maximum", k.max}}},
                                         {"minItems", 1},
                                         {"maxItems", kMaxList}};
                               },
                               [](const NumberPairKind& k) -> OrderedJson {
                                 return {{"type", "array"},
                                         {"items", {{"type", "number"}, {"minimum", k.min}, {"exclusiveMaximum", k.max}}},
                                         {"minItems", 2},
                                         {"maxItems", 2}};
                               },
                               [](const TextListKind& k) -> OrderedJson {
                                 OrderedJson text{{"type", "string"}};
                                 if (!k.allows_empty) text["minLength"] = 1;
                                 return {{"type", "array"}, {"items", text}, {"maxItems", kMaxList}};
                               },
                               [](const ParameterGroupsKind&) {
                                 const OrderedJson number{{"type", "number"}, {"minimum", 0}};
                                 OrderedJson properties;
                                 properties["parameters"] = {{"type", "string"}, {"minLength", 1}};
                                 properties["lr_scale"] = number;
                                 properties["weight_decay"] = number;
                                 const OrderedJson group{{"type", "object"},
                                                         {"additionalProperties", false},
                                                         {"properties", properties},
                                                         {"required", {"parameters"}}};
                                 return OrderedJson{{"type", "array"}, {"items", group}, {"maxItems", kMaxList}};
                               }},
                    kind);
}

std::string types_text(const Key& key) {
  std::string out;
  for (const std::string_view type : key.section_types) out += (out.empty() ? "" : ", ") + std::string(type);
  return out;
}

bool has_one_default(const Key& key) {
  return !key.required && key.default_text.empty();
}

OrderedJson key_schema(const Key& key, const TrainConfig& defaults) {
  OrderedJson out;
  out["description"] = key.doc + (key.section_types.empty() ? "" : " Only for type " + types_text(key) + ".") +
                       (key.default_text.empty() ? "" : " Default: " + key.default_text + ".");
  out.update(kind_schema(key.kind));
  if (has_one_default(key)) out["default"] = key.get(defaults);
  if (key.may_change) out["x-may-change"] = true;
  return out;
}

// Returns the schema condition "the type of the section has this key". If the default type has the key, the type may be
// omitted. The model type "auto" may have the keys of language models, because it is replaced by the type of a language model.
OrderedJson type_condition(const Key& key) {
  OrderedJson names = names_json(key.section_types);
  const bool language = std::ranges::any_of(key.section_types, [](auto name) { return name == "gpt" || name == "llama"; });
  if (key.section == "model" && language) names.push_back("auto");
  OrderedJson out{{"properties", {{"type", {{"enum", names}}}}}};
  if (!applies(key, TrainConfig{})) out["required"] = {"type"};
  return out;
}

// Requires a key only for the types that need it.
OrderedJson required_by_type(const Key& key) {
  return {{"if", type_condition(key)}, {"then", {{"required", {key.name}}}}};
}

bool needs_something(const OrderedJson& section) {
  return section.contains("required") || section.contains("allOf");
}

std::string parent_of(const std::string& section) {
  const std::size_t dot = section.rfind('.');
  return dot == std::string::npos ? "" : section.substr(0, dot);
}
std::string leaf_of(const std::string& section) {
  return section.substr(section.rfind('.') + 1);
}

// Returns the schema of the section "task" for an unknown worker program: it accepts any keys.
OrderedJson unknown_task_schema() {
  return {{"description", "The keys of a custom worker program; its --schema prints a schema that contains them."},
          {"type", "object"}};
}

OrderedJson section_schema(const Section& section, const TaskConfig& task) {
  OrderedJson out{{"description", section.doc}, {"type", "object"}, {"additionalProperties", false}};
  OrderedJson required = OrderedJson::array(), by_type = OrderedJson::array(), conditions = OrderedJson::object();
  OrderedJson& properties = out["properties"] = OrderedJson::object();
  if (section.name.empty()) properties["$schema"] = {{"type", "string"}, {"description", "For editors; ignored."}};
  const TrainConfig defaults = defaults_with(task);
  for (const Key& key : keys_with(task)) {
    if (key.section != section.name) continue;
    properties[key.name] = key_schema(key, defaults);
    if (key.required && key.section_types.empty()) required.push_back(key.name);
    if (key.required && !key.section_types.empty()) by_type.push_back(required_by_type(key));
    if (!key.section_types.empty()) conditions[key.name] = type_condition(key);
  }
  if (section.name.empty() && task.empty()) properties[std::string(kTaskSection)] = unknown_task_schema();
  for (const Section& child : sections_with(task)) {
    if (child.name.empty() || parent_of(child.name) != section.name) continue;
    properties[leaf_of(child.name)] = section_schema(child, task);
    if (needs_something(properties[leaf_of(child.name)])) required.push_back(leaf_of(child.name));
  }
  if (!required.empty()) out["required"] = std::move(required);
  if (!by_type.empty()) out["allOf"] = std::move(by_type);
  if (!conditions.empty()) out["dependentSchemas"] = std::move(conditions);
  return out;
}

std::string default_cell(const Key& key) {
  if (key.required) return "*required*";
  if (!key.default_text.empty()) return key.default_text;
  return "`" + key.get(TrainConfig{}).dump() + "`";
}

std::string key_row(const Key& key) {
  return "| `" + key.name + "` | " + expectation(key.kind) + " | " + default_cell(key) + " | " + (key.may_change ? "yes" : "") +
         " | " + key.doc + (key.section_types.empty() ? "" : " Only for type " + types_text(key) + ".") + " |\n";
}

}  // namespace

std::string config_schema_json(const TaskConfig& task) {
  OrderedJson out{{"$schema", "https://json-schema.org/draft/2020-12/schema"}, {"title", "train.json of ddprun"}};
  out.update(section_schema(config_sections().front(), task));
  return out.dump(2) + "\n";
}

std::string task_keys_help(const TaskConfig& task) {
  std::string out;
  for (const Key& key : keys_with(task)) {
    if (key.section != kTaskSection) continue;
    const std::string otherwise = key.required ? "required" : "default " + key.get(defaults_with(task)).dump();
    out += "  task." + key.name + ": " + expectation(key.kind) + "; " + otherwise + "\n      " + key.doc + "\n";
  }
  return out;
}

std::string config_reference_markdown() {
  std::string out;
  for (const Section& section : config_sections()) {
    out += (out.empty() ? "" : "\n");
    out += "### " + (section.name.empty() ? "Top level" : "`" + section.name + "`") + "\n\n" + section.doc + "\n\n";
    out += "| Key | Value | Default | May change | Meaning |\n| --- | --- | --- | --- | --- |\n";
    for (const Key& key : config_keys()) {
      if (key.section == section.name) out += key_row(key);
    }
  }
  return out;
}

}  // namespace ddprun
