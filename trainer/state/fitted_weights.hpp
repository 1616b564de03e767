// Adapts the weights of a language model from another program to the names and shapes of ours.
//
// Files of the same model differ in three ways. First, the prefixes of the names may differ. If the body of the model was
// saved without its output layer, the prefix of the body is missing ("transformer." or "model."). A wrapper adds a prefix
// ("module.", "_orig_mod."). Second, old versions of transformers also stored constants that the model computes, such as the
// mask of attention. Third, a table of learned positions may have more rows than data.block_size. If model.crop_positions is
// true, only the first rows are used.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/config/train_config.hpp"
#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Returns the tensors under the model's names. `names` contains all names of the model. A tensor whose name is not found under
// any prefix keeps its name. Constants that the model computes are omitted.
std::vector<NamedTensor> with_names(const std::set<std::string>& names, std::vector<NamedTensor> weights);

// Returns the weights with only the first `block_size` learned positions if `config` permits it. Throws UsageError if there
// are more positions and `config` does not permit it. `source` is used in the message.
std::vector<NamedTensor> with_positions(std::vector<NamedTensor> weights, const TrainConfig& config,
                                        const std::filesystem::path& source);

}  // namespace ddprun::trainer
