"""Fine-tunes a text classifier with Hugging Face's Trainer. Without an argument it starts from a tiny model with random weights, so nothing is
downloaded. `finetune.py FOLDER` starts from the model and the tokenizer in that folder."""

import os
import random
import sys

from ddprun import integrations
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (AutoModelForSequenceClassification, AutoTokenizer, BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast, Trainer,
                          TrainingArguments, set_seed)
from transformers.trainer_utils import get_last_checkpoint

GOOD, BAD, THINGS = ["good", "great", "superb"], ["bad", "awful", "boring"], ["film", "book", "song", "play"]


def sentences() -> list[tuple[str, int]]:
    made = [(f"{start} {thing} is {word}", label) for start in ("this", "that", "the") for thing in THINGS
            for label, words in enumerate((BAD, GOOD)) for word in words]
    random.Random(0).shuffle(made)
    return made


def start():
    if sys.argv[1:]:
        return AutoTokenizer.from_pretrained(sys.argv[1]), AutoModelForSequenceClassification.from_pretrained(sys.argv[1], num_labels=2)
    words = ["[PAD]", "[UNK]", "this", "that", "the", "is", *THINGS, *GOOD, *BAD]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    sizes = BertConfig(vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, num_labels=2)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"), BertForSequenceClassification(sizes)


set_seed(0)
tokenizer, model = start()
samples = [{**tokenizer(text), "labels": label} for text, label in sentences()]
arguments = TrainingArguments("out", num_train_epochs=10, per_device_train_batch_size=4, learning_rate=5e-3, logging_steps=15, save_strategy="no",
                              average_tokens_across_devices=False,  # the loss is a mean over samples, not over tokens
                              report_to=[], disable_tqdm=True, ddp_find_unused_parameters=False, use_cpu=True)  # on GPUs, remove use_cpu
trainer = Trainer(model, arguments, train_dataset=samples[:48], eval_dataset=samples[48:], processing_class=tokenizer,
                  compute_metrics=lambda found: {"accuracy": float((found.predictions.argmax(1) == found.label_ids).mean())},
                  callbacks=[integrations.hugging_face()])  # reports steps, and saves when the job is stopped
trainer.train(resume_from_checkpoint=get_last_checkpoint("out") if os.path.isdir("out") else None)
if trainer.state.global_step == trainer.state.max_steps:  # false if the job was stopped
    result = trainer.evaluate()
    if trainer.is_world_process_zero():
        print(f"test accuracy {result['eval_accuracy']:.1%}, loss {result['eval_loss']:.4f}", flush=True)
