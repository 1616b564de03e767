// The config.json of a Hugging Face model, translated to keys of train.json.
//
// The problem. A folder of Hugging Face contains weights and a config.json. The weights show names and shapes, but not the
// number of heads, the base of rotary positions, the epsilon of a norm or the activation. A model with another value there runs
// without an error, and its loss is worse. Different families also share tensor names: Gemma and Granite use Llama's names, but
// multiply some activations by additional factors.
//
// The idea. Each setting of config.json is one of three things. It has a key in train.json: then it becomes a ModelFact. Or
// ddptrain computes only one of its values, such as the activation "silu": then any other value becomes a refusal that names
// the setting. Or no result depends on it, such as the version of transformers: then it is ignored. So a model without
// refusals, and with the facts as its keys, computes the logits of transformers up to rounding.
//
// Example: {"model_type": "qwen2", "num_attention_heads": 14, ...} gives the type "llama" and the facts model.n_head 14,
// model.attention_bias "qkv", and so on.
//
// Two callers use the facts. auto_model.hpp adds them to a config with model.type "auto". trainer/models/foreign_config.hpp
// compares them with the keys of a config that names its model. If a file lacks a setting, the default of the corresponding
// class in transformers applies. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ddprun {

struct ModelFact {
  enum class Kind {
    kCompared,   // no tensor's shape shows the value, so a config must have the same value
    kIfStated,   // a tensor's shape shows the value: compared only if the file contains the setting
    kSuggested,  // a setting of the training: used if a config lacks the key, and never compared
  };
  std::string key;             // key of train.json, such as "model.n_head"
  nlohmann::json value;        // value of this key for the model of the file
  std::string their_key;       // the setting in the file, such as "num_attention_heads"
  nlohmann::json their_value;  // its value in the file, or the default
  Kind kind = Kind::kCompared;
  bool stated = false;  // true if the file contains the setting
};

struct ModelFacts {
  std::string family;  // model_type of the file
  std::string type;    // the corresponding model.type: "gpt" or "llama"; empty if ddptrain lacks this family
  std::vector<ModelFact> facts;
  std::vector<std::string> refusals;  // texts about settings that ddptrain does not support, each with the value in the file
  std::int64_t positions = 0;         // rows of the table of learned positions; 0: none, or not stated
  std::int64_t window = 0;            // tokens to which a token attends, if the model limits them; 0: all tokens before it
};

// Families that ddptrain computes, for messages.
inline constexpr const char* kKnownFamilies = "gpt2, llama, mistral, qwen2 and qwen3";

// True if the value is a config of a Hugging Face model.
bool is_hugging_face_config(const nlohmann::json& value);

// Translates the config. The values may have any type: an unexpected type is a refusal. For an unknown family, only `family` is
// set.
ModelFacts model_facts(const nlohmann::json& file);

// Checks the number of tokens per sample. Returns why the model of the file cannot have samples of `block_size` tokens. Returns
// an empty string if it can. `crop`: the config permits to use only the first rows of a table of learned positions. `file`: the
// name of the file in the message.
std::string block_size_problem(const ModelFacts& model, std::int64_t block_size, bool crop,
                               const std::string& file = "that file");

// True for equal values. Numbers are equal if they differ only by the rounding of a printed number.
bool same_setting(const nlohmann::json& one, const nlohmann::json& other);

// A value in a message: printable, at most 100 bytes.
std::string setting_text(const nlohmann::json& value);

}  // namespace ddprun
