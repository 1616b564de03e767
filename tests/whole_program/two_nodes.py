"""A training job with two agents on the loopback interface, for test_local_copies.py and test_node_disks.py. Separate folders
represent the disks of the nodes."""

import pathlib

import jobs
from jobs import free_port


class Job:
    """Two nodes with one worker each. Node N writes its copies of checkpoints to disk-N, if copies are enabled. The nodes share
    a run directory, or each node has its own run directory."""

    def __init__(self, nodes, folder: pathlib.Path, config: dict, own_run_directories: bool = False, copies: bool = True):
        self.nodes, self.folder = nodes, folder
        self.own_run_directories, self.keeps_copies = own_run_directories, copies
        self.config = jobs.write_config(folder / "train.json", config)

    def run_dir(self, node: int) -> pathlib.Path:
        return self.folder / f"host-{node}" / "run" if self.own_run_directories else self.folder / "run"

    def copies(self, node: int) -> list[pathlib.Path]:
        return sorted((self.folder / f"disk-{node}").glob("run-*/copy-0/step-?????????"))

    def shared(self) -> list[pathlib.Path]:
        return sorted((self.run_dir(0) / "checkpoints").glob("step-?????????"))

    def start(self, *flags, overrides=(), restarts: int = 0, nodes=(0, 1), least: int | None = None, **environment: str) -> None:
        """Starts the nodes in the order of `nodes`. The position of a node in `nodes` is its --node-rank, so a rank is always
        on the same node if `nodes` is the same. Only the first node, which is the coordinator, gets the flags."""
        self.nodes.agents.clear()
        port = free_port()
        for rank, node in enumerate(nodes):
            copies = [f"checkpoint.local_dir={self.folder}/disk-{node}"] if self.keeps_copies else []
            self.nodes.start("--nnodes", f"{least or len(nodes)}:{len(nodes)}", "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", port, "--max-restarts", restarts,
                             "--run-dir", self.run_dir(node), *(flags if rank == 0 else ()), self.config, *copies, *overrides, **environment)

    def launch(self, *flags, **how) -> list[int]:
        self.start(*flags, **how)
        return self.nodes.wait()

    def fail_at(self, step: int) -> None:
        """Runs the job until rank 1 fails at step `step`. All earlier checkpoints are then complete, both in the copies and in
        the run directory."""
        codes = self.launch(overrides=["checkpoint.background=false"], DDPTRAIN_FAULT=f"exit=7 rank=1 step={step}")
        assert codes == [7, 7], self.nodes.all_text()

    def resumed(self) -> list[tuple[int, str]]:
        return [(e["step"], e["checkpoint"]) for e in jobs.metrics(self.run_dir(0), "resume")]

    def assert_same_bits(self, calm: pathlib.Path) -> None:
        assert jobs.weights_digest(self.run_dir(0)) == jobs.weights_digest(calm)
