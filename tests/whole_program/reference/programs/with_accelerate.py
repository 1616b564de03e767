"""A training loop with Hugging Face accelerate and a small network with random weights. Writes its losses and the environment
that accelerate detected."""

import torch
from accelerate import Accelerator
from results import end, leave
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(5)
    data = TensorDataset(torch.randn(48, 6, generator=torch.Generator().manual_seed(1)), torch.arange(48) % 3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.02),
                                                   DataLoader(data, batch_size=6, shuffle=True))
    losses = []
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(accelerator.gather(loss.detach().reshape(1)).tolist())
    leave({"losses": losses, "processes": accelerator.num_processes, "process": accelerator.process_index,
           "local": accelerator.local_process_index, "type": str(accelerator.distributed_type)})
    accelerator.wait_for_everyone()
    accelerator.end_training()
    end()


if __name__ == "__main__":
    main()
