// Translates the config.json of a Hugging Face model to keys of train.json.
//
// The problem. A folder of Hugging Face contains weights and a config.json. The weights have names and shapes, but they do not
// contain the number of heads, the base of rotary positions, the epsilon of a norm or the activation. With a wrong value of
// one of these settings, a model runs without an error, but its loss is worse. Different families also share tensor names:
// Gemma and Granite use Llama's names, but multiply some activations by additional factors.
//
// The idea. There are three kinds of settings in config.json. A setting that has a key in train.json becomes a ModelFact. If
// ddptrain supports only one value of a setting, such as the activation "silu", any other value becomes a refusal that names
// the setting. A setting that does not affect the results, such as the version of transformers, is ignored. So if there are no
// refusals, a model whose keys are the facts computes the same logits as transformers, up to rounding.
//
// Example: {"model_type": "qwen2", "num_attention_heads": 14, ...} gives the type "llama" and the facts model.n_head 14,
// model.attention_bias "qkv", and so on.
//
// Two callers use the facts. auto_model.hpp adds them to a config with model.type "auto". trainer/models/foreign_config.hpp
// compares them with the keys of a config that names its model. If a file lacks a setting, the default of the corresponding
// class in transformers applies. The code is pure: no I/O, no clock.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ddprun {

struct ModelFact {
  enum class Kind {
    kCompared,   // the tensor shapes do not determine the value, so the config must have the same value
    kIfStated,   // the shape of a tensor determines the value, so it is compared only if the file contains the setting
    kSuggested,  // a training setting: used if the config lacks the key, but never compared
  };
  std::string key;             // key of train.json, such as "model.n_head"
  nlohmann::json value;        // value of this key for the model that the file describes
  std::string their_key;       // the setting in the file, such as "num_attention_heads"
  nlohmann::json their_value;  // value of the setting `their_key` in the file, or its default
  Kind kind = Kind::kCompared;
  bool stated = false;  // true if the file contains the setting
};

struct ModelFacts {
  std::string family;  // model_type of the file
  std::string type;    // the corresponding model.type: "gpt" or "llama"; empty if ddptrain does not support this family
  std::vector<ModelFact> facts;
  std::vector<std::string> refusals;  // texts about settings that ddptrain does not support, each with the value in the file
  // rows of the table of learned positions; 0: no such table, or the file does not contain the number
  std::int64_t positions = 0;
  // maximum number of tokens to which a token attends; 0: a token attends to all earlier tokens
  std::int64_t window = 0;
};

// Model families that ddptrain supports, for messages.
inline constexpr const char* kKnownFamilies = "gpt2, llama, mistral, qwen2 and qwen3";

// Returns true if the value is a config of a Hugging Face model.
bool is_hugging_face_config(const nlohmann::json& value);

// Translates the config. A value of an unexpected type becomes a refusal. For an unknown family, only `family` is set.
ModelFacts model_facts(const nlohmann::json& file);

// Returns the reason why the model cannot train on samples of `block_size` tokens; empty if it can. If `crop` is true, the
// model may use only the first rows of a longer table of learned positions. `file` is the name of the file in the message.
std::string block_size_problem(const ModelFacts& model, std::int64_t block_size, bool crop,
                               const std::string& file = "that file");

// Returns true if the values are equal. Two numbers are equal if they differ only by the rounding of a printed number.
bool same_setting(const nlohmann::json& one, const nlohmann::json& other);

// Returns the value as text for a message: printable, at most 100 bytes.
std::string setting_text(const nlohmann::json& value);

}  // namespace ddprun
