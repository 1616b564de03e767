// Loads the weights for the start of a new run (model.init), or for `ddptrain eval`, `predict` and `generate`. Checks that the
// weights belong to the configured model. training_state.cpp copies them into the model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Detects a folder that is often used as a checkpoint by mistake, and returns a message with the correct alternative. Such a
// folder has only low-rank updates from the peft package, or an exported model. Returns an empty string for any other folder.
std::string why_not_a_model(const std::filesystem::path& folder);

// Returns all tensors of a safetensors file, of a Hugging Face folder or index (pretrained_files.hpp), or of a checkpoint's
// folder. Throws UsageError, whose message suggests a usable file.
std::vector<NamedTensor> initial_weights(const std::filesystem::path& source);

// Checks model.lora.alpha, which scales low-rank updates but is not stored with them. With a different alpha than in training,
// the model would compute different results without an error. Throws UsageError if the run that wrote `source` used a different
// alpha. Returns a note for the user if that run is unknown. Returns an empty string if the values are equal or `weights`
// contains no low-rank updates.
std::string compare_alpha(const std::vector<NamedTensor>& weights, const std::filesystem::path& source,
                          const LoraConfig& config);

// Thrown if the weights have the shapes of the configured model, but were trained for a model with different options.
class OtherModelError : public UsageError {
 public:
  using UsageError::UsageError;
};

// Compares the model of `config` with the config.json next to the weights, or with the config of the run that wrote them
// (trainer/models/foreign_config.hpp). Throws OtherModelError with both values of each key that differs. Some keys change no
// tensor's shape, so the weights alone do not show their values. If no config was found, returns a note about these keys;
// otherwise returns an empty string.
std::string compare_model(const std::filesystem::path& source, const TrainConfig& config);

// Returns a note if the run that wrote the weights has trained on samples that `config` holds out for validation. Returns an
// empty string if the run has not used such samples, or if the run is unknown.
std::string compare_held_out(const std::filesystem::path& source, const TrainConfig& config);

}  // namespace ddprun::trainer
