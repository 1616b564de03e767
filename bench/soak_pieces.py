"""The results of all soak tests so far. A long soak test is run in pieces with different seeds. The result of each piece is
one line of a file in the folder of the benchmark results. The rows of soak_bench.py cover all pieces together, including
failed ones.
"""

import dataclasses
import hashlib
import json
import pathlib

from measure import Row, Series


@dataclasses.dataclass
class Piece:
    """The result of one piece, which is one job with its injected faults."""

    job: str
    seed: int
    faults: int
    apart: float  # mean seconds between two faults, at the speed of a run without faults
    # The problems that were found, or an empty list. Possible problems are: weights that differ from the weights of a run
    # without faults, uncounted faults, and processes or files that the run left behind.
    wrong: list[str]
    causes: dict[str, int] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    steps_lost: int = 0
    network_mbit: float = 0  # rate limit of the loopback network; 0 for no limit
    stalls: int = 0  # number of faults that blocked writes to the run directory

    @property
    def how(self) -> str:
        return f"faults {self.apart:g} s apart" + (f", network of {self.network_mbit:g} Mbit/s" if self.network_mbit else "")

    @property
    def useful_percent(self) -> float:
        spent = {name: value for name, value in self.seconds.items() if name != "lost_s"}
        return 100 * (spent["training_s"] + spent["evaluation_s"] - self.seconds["lost_s"]) / sum(spent.values())


class Pieces:
    def __init__(self, folder: pathlib.Path):
        self.file = folder / "soak-pieces.jsonl"
        self.baseline_file = folder / "soak-calm.json"
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, piece: Piece) -> None:
        with self.file.open("a", encoding="utf-8") as f:
            f.write(json.dumps(dataclasses.asdict(piece)) + "\n")

    def all(self) -> list[Piece]:
        return [Piece(**json.loads(line)) for line in self.file.read_text(encoding="utf-8").splitlines()] if self.file.exists() else []

    def rows(self) -> list[Row]:
        rows = []
        for job in dict.fromkeys(piece.job for piece in self.all()):
            mine = [piece for piece in self.all() if piece.job == job]
            injected, good = sum(p.faults for p in mine), sum(p.faults for p in mine if not p.wrong)
            rows.append(Row(f"{job}: faults after which the run ended with the weights of a run without faults, a complete report, and no leftover process or file", "",
                            f"{good} of {injected}", None, wanted=f"{injected} of {injected}"))
            for how in sorted({p.how for p in mine}, reverse=True):
                shares = [p.useful_percent for p in mine if p.how == how and p.seconds]
                if shares:
                    rows.append(Row(f"{job}: share of the time with useful work, {how}", "%", Series(shares), None, larger_is_better=True))
        return rows

    def calm(self, ddptrain: str, length: str) -> dict | None:
        """Returns the number of steps and the digest of the weights of a run of this length without faults. Returns None if
        this result is not stored. A result is stored for each ddptrain binary, so each binary needs the run only once."""
        return self._baseline_runs().get(self._key(ddptrain, length))

    def store_baseline(self, ddptrain: str, length: str, run: dict) -> None:
        runs = {**self._baseline_runs(), self._key(ddptrain, length): run}
        self.baseline_file.write_text(json.dumps(runs, indent=1), encoding="utf-8")

    def _baseline_runs(self) -> dict:
        return json.loads(self.baseline_file.read_text(encoding="utf-8")) if self.baseline_file.exists() else {}

    @staticmethod
    def _key(ddptrain: str, length: str) -> str:
        digest = hashlib.sha256(pathlib.Path(ddptrain).read_bytes()).hexdigest()[:16]
        return f"{length}, ddptrain {digest}"
