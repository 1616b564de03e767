// The next token of a text by a GPT: cross entropy, and as figure the loss. Batches are {tokens, next tokens} as
// trainer/tokens/token_file.hpp has them, and count by tokens.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/models/text_context.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// What each of these tokens [n, positions] sees: of a document its own tokens, where the config tells documents apart.
TextContext context_of(const at::Tensor& tokens, const DataConfig& config);

// Of the config it reads `model`, `data.vocab_size`, `data.end_of_document`, `seed` and `label_smoothing`.
std::unique_ptr<Task> language_model(const TrainConfig& config);

}  // namespace ddprun::trainer
