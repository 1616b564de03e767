"""Runs the Trainer of Lightning with the callback of ddprun on two ranks. It trains until the job is stopped.
test_python_helper.py starts this program. Argument 1 is the output folder."""

import os
import sys
import warnings

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset

import ddprun
from ddprun import integrations

warnings.filterwarnings("ignore")


class Small(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _index):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


class AtWork(Callback):
    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step == 10:
            print("at work", flush=True)


trainer = Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp", max_epochs=1, default_root_dir=sys.argv[1], logger=False,
                  enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[integrations.lightning(), AtWork()])
trainer.fit(Small(), DataLoader(TensorDataset(torch.randn(1_000_000, 4)), batch_size=2))
print("ended", ddprun.rank, trainer.global_step, flush=True)
