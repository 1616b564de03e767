"""Runs the Trainer of Hugging Face transformers on a tiny GPT-2 with random weights. The model is created from a config, so
nothing is downloaded. Writes the logged losses."""

import sys

import torch
from results import end, leave
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed


def main() -> None:
    set_seed(5)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_positions=16, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0))
    texts = torch.randint(0, 50, (64, 16), generator=torch.Generator().manual_seed(1))
    trainer = Trainer(model=model, train_dataset=[{"input_ids": text, "labels": text} for text in texts],
                      args=TrainingArguments(output_dir=sys.argv[1] + "/trainer", max_steps=6, per_device_train_batch_size=4, use_cpu=True,
                                             learning_rate=0.01, logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, seed=5))
    trainer.train()
    leave({"log": [{k: entry[k] for k in ("step", "loss", "grad_norm") if k in entry} for entry in trainer.state.log_history],
           "processes": trainer.args.world_size, "local": trainer.args.local_process_index,
           "weights": sum(p.double().sum().item() for p in trainer.model.parameters())})
    end()


if __name__ == "__main__":
    main()
