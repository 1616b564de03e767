"""Runs transformers.Trainer with the callback of ddprun on two ranks. It trains until the job is stopped.
test_python_helper.py starts this program. Argument 1 is the output folder."""

import sys

import torch
import transformers

import ddprun
from ddprun.integrations import hugging_face


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x=None, labels=None):
        return {"loss": ((self.layer(x) - labels) ** 2).mean()}


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        return {"x": torch.full((4,), float(index % 7)), "labels": torch.tensor([float(index % 3)])}


class AtWork(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, **_):
        if state.global_step == 10:
            print("at work", flush=True)


arguments = transformers.TrainingArguments(output_dir=sys.argv[1], per_device_train_batch_size=2, use_cpu=True, logging_steps=5, report_to=[],
                                           save_strategy="no", disable_tqdm=True, max_steps=200_000)
trainer = transformers.Trainer(model=Model(), args=arguments, train_dataset=Data(), callbacks=[hugging_face(), AtWork()])
trainer.train()
print("ended", ddprun.rank, trainer.state.global_step, flush=True)
