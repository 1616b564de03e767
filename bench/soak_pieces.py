"""The results of soaks so far. A soak of many hours is run in pieces with different seeds; each piece is a line in a file next to the other results.
Used by soak_bench.py; its rows cover all pieces together, including failed ones."""

import dataclasses
import hashlib
import json
import pathlib

from measure import Row, Series


@dataclasses.dataclass
class Piece:
    """One job with its faults, run to its end."""

    job: str
    seed: int
    faults: int
    apart: float  # seconds, at the speed of an undisturbed run
    wrong: list[str]  # empty if the weights are those of the undisturbed run, all faults were counted and no process or file was left
    causes: dict[str, int] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict)
    steps_lost: int = 0
    network_mbit: float = 0  # 0: no limit on loopback
    stalls: int = 0  # stalls of the run directory, included in the faults

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
        self.calm_file = folder / "soak-calm.json"
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
            rows.append(Row(f"{job}: faults after which the weights are those of the undisturbed run, all are counted and nothing is left", "",
                            f"{good} of {injected}", None, wanted=f"{injected} of {injected}"))
            for how in sorted({p.how for p in mine}, reverse=True):
                shares = [p.useful_percent for p in mine if p.how == how and p.seconds]
                if shares:
                    rows.append(Row(f"{job}: useful share of the time, {how}", "%", Series(shares), None, larger_is_better=True))
        return rows

    def calm(self, ddptrain: str, length: str) -> dict | None:
        """The number of steps of the undisturbed run of that length, and the digest of its weights. The run is made once."""
        return self._calm_runs().get(self._key(ddptrain, length))

    def keep_calm(self, ddptrain: str, length: str, run: dict) -> None:
        runs = {**self._calm_runs(), self._key(ddptrain, length): run}
        self.calm_file.write_text(json.dumps(runs, indent=1), encoding="utf-8")

    def _calm_runs(self) -> dict:
        return json.loads(self.calm_file.read_text(encoding="utf-8")) if self.calm_file.exists() else {}

    @staticmethod
    def _key(ddptrain: str, length: str) -> str:
        digest = hashlib.sha256(pathlib.Path(ddptrain).read_bytes()).hexdigest()[:16]
        return f"{length}, ddptrain {digest}"
