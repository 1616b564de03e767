// Weights that a model begins with, or is measured with: model.init, and what `ddptrain eval`, `predict` and `generate` are
// given. training_state.cpp copies them into the model.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "common/base/error.hpp"
#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Why a folder that people take for a checkpoint is none, and what to give instead: low-rank updates alone, as the peft package
// writes them, or an exported model. Empty: it is neither.
std::string no_whole_model(const std::filesystem::path& folder);

// All of a safetensors file, or of a checkpoint's folder. Throws UsageError that says what to give instead.
std::vector<NamedTensor> initial_weights(const std::filesystem::path& source);

// Low-rank updates among `weights` compute something else with another alpha than they were trained with. Compares the config's
// with that of the run in whose checkpoints `source` lies; throws UsageError where they differ. Returns what to tell where that
// is not known, since it lies in none; empty: they are equal, or there are no updates.
std::string compare_alpha(const std::vector<NamedTensor>& weights, const std::filesystem::path& source,
                          const LoraConfig& config);

// The weights are of a model that computes something else than the one of the config.
class OtherModelError : public UsageError {
 public:
  using UsageError::UsageError;
};

// Compares the model of `config` with the config.json next to the weights, or with that of the run that wrote them
// (trainer/models/foreign_config.hpp). Throws OtherModelError that shows both values of each key. Returns a note if no such
// file confirms what no shape shows; empty otherwise.
std::string compare_model(const std::filesystem::path& source, const TrainConfig& config);

// A note if the run that wrote the weights trained on samples of the same data that `config` holds out. Empty otherwise, or if
// that run is not known.
std::string compare_held_out(const std::filesystem::path& source, const TrainConfig& config);

}  // namespace ddprun::trainer
