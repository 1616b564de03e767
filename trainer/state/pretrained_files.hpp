// The weights in a folder of a Hugging Face model. They are in model.safetensors, or in several files (shards) that
// model.safetensors.index.json lists:
//
//   {"weight_map": {"model.embed_tokens.weight": "model-00001-of-00002.safetensors", ...}}
//
// initial_weights.cpp reads weights with these functions.
#pragma once

#include <filesystem>
#include <vector>

#include "trainer/optim/optimizer.hpp"

namespace ddprun::trainer {

// Returns true if the folder contains one of the two files, and the config.json that each model of Hugging Face has. The
// second condition excludes damaged checkpoints of ddprun.
bool is_pretrained_folder(const std::filesystem::path& folder);

// Returns true for the path of an index, whose name ends in ".safetensors.index.json".
bool is_shard_index(const std::filesystem::path& file);

// Reads all tensors of a folder for which is_pretrained_folder() is true, or of the shards that an index lists. Throws
// UsageError if the index is damaged, names a file outside of its folder, or lists a tensor that its shard does not contain.
std::vector<NamedTensor> read_pretrained(const std::filesystem::path& folder_or_index);

}  // namespace ddprun::trainer
