"""Trains a small classifier with Lightning. If a stopped job has left a checkpoint, the training continues from it."""

import os

import torch
from ddprun import integrations
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch.utils.data import DataLoader, TensorDataset

CHECKPOINT = "out/ddprun.ckpt"  # the callback writes it when the job is stopped


class Classifier(LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))

    def training_step(self, batch, _):
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _):
        self.log("accuracy", (self.net(batch[0]).argmax(1) == batch[1]).float().mean(), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def points(count: int, seed: int) -> TensorDataset:
    inputs = torch.rand(count, 2, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return TensorDataset(inputs, (inputs.square().sum(1) < 0.6).long())  # the class of a point: inside or outside of a circle


seed_everything(0, verbose=False)
trainer = Trainer(accelerator="cpu", devices=int(os.environ.get("LOCAL_WORLD_SIZE", 1)), num_nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),
                  strategy="ddp", max_epochs=5, default_root_dir="out", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                  enable_model_summary=False, callbacks=[integrations.lightning()])  # reports steps, and saves when the job is stopped
trainer.fit(Classifier(), DataLoader(points(2048, seed=1), batch_size=32, shuffle=True), DataLoader(points(512, seed=2), batch_size=64),
            ckpt_path=CHECKPOINT if os.path.exists(CHECKPOINT) else None)
if trainer.is_global_zero:
    print(f"epoch {trainer.current_epoch}: test accuracy {trainer.callback_metrics['accuracy']:.1%}", flush=True)
