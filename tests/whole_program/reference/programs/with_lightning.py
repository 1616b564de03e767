"""A training run with the Trainer of Lightning, which writes its losses. The Trainer must detect that a launcher has started
it, and must not start more processes itself."""

import os
import warnings

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from results import end, leave
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")


class Small(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
        self.losses: list[float] = []

    def training_step(self, batch, _index):
        loss = torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.02)


def main() -> None:
    seed_everything(5, verbose=False)
    data = TensorDataset(torch.randn(48, 6, generator=torch.Generator().manual_seed(1)), torch.arange(48) % 3)
    model = Small()
    trainer = Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp", max_epochs=2, logger=False,
                      enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(model, DataLoader(data, batch_size=6, shuffle=True))
    leave({"losses": model.losses, "environment": type(trainer.strategy.cluster_environment).__name__, "processes": trainer.world_size,
           "rank": trainer.global_rank, "local": trainer.local_rank})
    end()


if __name__ == "__main__":
    main()
