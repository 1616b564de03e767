// model.type "auto": the model is determined by the config.json in the same folder as the weights of model.init.
//
// parse_config.cpp calls these functions before it reads the keys of a train.json. They add the keys of the model to the JSON
// text, as if the user had written these keys. So all later code, config.json of the run directory and the digest contain the
// concrete model. A resumed run needs neither the file nor model.type "auto".
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ddprun {

struct AutoModel {
  struct Problem {
    std::string pointer;  // JSON pointer of the key
    std::string message;
  };
  nlohmann::json config;          // the train.json with model.type and the keys of the model
  std::vector<Problem> problems;  // keys that contradict config.json, and settings that ddptrain does not support
  std::string note;               // a line for the user: the model, and the data keys that come from config.json
};

// The config.json of a model, and its tokenizer.
struct HuggingFaceFolder {
  std::filesystem::path file;         // path of the config.json, for messages
  nlohmann::json config;              // its content
  std::filesystem::path tokenizer{};  // folder with a tokenizer; empty if there is none
};

// Adds the keys of the model to `train`, whose model.type is "auto". Keys that `train` already contains are compared with the
// keys from config.json. The function is pure: no I/O, no clock.
AutoModel with_model_of(const nlohmann::json& train, const HuggingFaceFolder& folder);

// Reads the config.json in the folder `init`, or in the folder of the file `init`. Throws UsageError if the file is missing,
// or is not a config of a Hugging Face model.
HuggingFaceFolder read_hugging_face_folder(const std::filesystem::path& init);

}  // namespace ddprun
