// Predicts the next token of a text with a GPT: cross entropy loss, with the metric loss. Batches are {tokens, next tokens} as
// in trainer/tokens/token_file.hpp, weighted by tokens.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/models/text_context.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// The tokens to which each of `tokens` [n, positions] attends: only those of its own document if the config separates
// documents.
TextContext context_of(const at::Tensor& tokens, const DataConfig& config);

// Reads `model`, `data.vocab_size`, `data.end_of_document`, `seed` and `label_smoothing` of the config.
std::unique_ptr<Task> language_model(const TrainConfig& config);

}  // namespace ddprun::trainer
