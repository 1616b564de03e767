// Loads the weights with which a model begins or is evaluated: model.init, and the argument of `ddptrain eval`, `predict` and
// `generate`. training_state.cpp copies them into the model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Returns why a folder that looks like a checkpoint is not one, and what to use instead. It may have only low-rank updates, as
// the peft package writes them, or an exported model. Empty if it is neither.
std::string no_whole_model(const std::filesystem::path& folder);

// Returns all tensors of a safetensors file or of a checkpoint's folder. Throws UsageError that says what to use instead.
std::vector<NamedTensor> initial_weights(const std::filesystem::path& source);

// Low-rank updates among `weights` compute different results with another alpha than in training. This function compares the
// config's alpha with that of the run that wrote `source`, and throws UsageError if they differ. If that run is unknown, it
// returns a note for the user. Empty if they are equal or there are no updates.
std::string compare_alpha(const std::vector<NamedTensor>& weights, const std::filesystem::path& source,
                          const LoraConfig& config);

// The weights belong to a model that computes something else than the model of the config.
class OtherModelError : public UsageError {
 public:
  using UsageError::UsageError;
};

// Compares the model of `config` with the config.json next to the weights, or with that of the run that wrote them
// (trainer/models/foreign_config.hpp). Throws OtherModelError that shows both values of each key. Returns a note if no such
// file confirms the keys that no tensor shape shows; empty otherwise.
std::string compare_model(const std::filesystem::path& source, const TrainConfig& config);

// Returns a note if the run that wrote the weights trained on samples that `config` now holds out. Empty otherwise, or if that
// run is unknown.
std::string compare_held_out(const std::filesystem::path& source, const TrainConfig& config);

}  // namespace ddprun::trainer
