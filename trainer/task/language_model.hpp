// The task that predicts the next token of a text with a gpt or llama model. The loss is the cross entropy, and the metric is
// "loss". Batches are {tokens, next tokens} as in trainer/tokens/token_file.hpp. The weight of a batch is its number of tokens.
#pragma once

#include <memory>

#include "common/config/train_config.hpp"
#include "trainer/models/text_context.hpp"
#include "trainer/task/task.hpp"

namespace ddprun::trainer {

// Returns the tokens to which each token of `tokens` [n, positions] may attend. If the config separates documents, a token may
// attend only to tokens of its document.
TextContext context_of(const at::Tensor& tokens, const DataConfig& config);

// Uses these keys of the config: `model`, `data.vocab_size`, `data.end_of_document`, `seed` and `label_smoothing`.
std::unique_ptr<Task> language_model(const TrainConfig& config);

}  // namespace ddprun::trainer
