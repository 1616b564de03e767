"""How long training stands still for a checkpoint: ddptrain's verified, fsynced folder against a plain torch.save of the same state."""

import json
import pathlib
import tempfile

from measure import Row, Series, Table, Tools, environment, progress, timed
from training_bench import HERE, settings

CASES = [("mlp", 64), ("resnet18", 4)]


def pauses(file: pathlib.Path) -> list[float]:
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [e["pause_s"] * 1000 for e in events if e["event"] == "checkpoint"]


def run(tools: Tools, _quick: bool, repeats: int) -> list[Table]:
    rows = []
    with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as name:
        folder = pathlib.Path(name)
        for model, batch in CASES:
            ours, peer = [], []
            config = folder / f"{model}.json"
            config.write_text(json.dumps({**settings(model, batch, 20, 5), "checkpoint": {"every_steps": 4, "keep": 2}}), encoding="utf-8")
            plain = folder / f"{model}-python.json"
            plain.write_text(json.dumps(settings(model, batch, 20, 5)), encoding="utf-8")
            for i in range(repeats):
                progress(f"{model}: {i + 1} of {repeats}")
                run_dir = folder / f"run-{model}-{i}"
                timed([tools.ddprun, "-q", "--nproc-per-node", "1", "--run-dir", str(run_dir), str(config)], env=environment())
                ours += pauses(run_dir / "metrics.jsonl")
                out = folder / f"python-{model}-{i}.jsonl"
                timed([*tools.torchrun, "--standalone", "--nproc-per-node", "1", str(HERE / "python_ddp.py"), str(plain), str(out),
                       "--save-every", "4", str(folder / f"{model}-{i}.pt")], env=environment())
                peer += pauses(out)
            rows.append(Row(f"{model}, with momentum", "ms", Series(ours), Series(peer)))
    return [Table("Pause of training for a checkpoint (ours: checksums, fsync, atomic publication; torch.save: neither)", "torch.save", rows)]
