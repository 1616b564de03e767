"""Where the time of a step goes: the parts of a real job's steps add up to them, and ddprun report says it."""

import json
import pathlib

import jobs
import jsonschema
import pytest

PARTS = ["data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms", "rest_ms"]
SCHEMA = pathlib.Path(__file__).resolve().parents[2] / "docs/schemas/metrics.schema.json"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


@pytest.mark.parametrize("workers", [1, 2])
def test_parts_add_up_to_the_step(ddprun_bin, ddptrain_bin, data, tmp_path, workers):
    """Beside the clock of the log: its lines' times, without the evaluations between them."""
    train = jobs.write_config(tmp_path / "train.json", jobs.config(data, model={"type": "cnn"}, batch_size=64, epochs=6, micro_batch_size=16,
                                                                  eval_every_epochs=2, checkpoint={"every_steps": 0}, log={"every_steps": 5}))
    done = jobs.run([ddprun_bin, "--nproc-per-node", workers, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 0, done.stderr
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    sums, by_clock, steps_before, measured = dict.fromkeys(PARTS, 0.0), 0.0, 0, 0
    for line, after in zip(lines := jobs.metrics(tmp_path / "run"), [None, *lines]):
        jsonschema.validate(line, schema)
        if line["event"] != "step":
            continue
        steps, steps_before = line["step"] - steps_before, line["step"]
        if after is None or after["event"] != "step":
            continue  # an evaluation or the start was in between
        measured += steps
        by_clock += (line["time_ns"] - after["time_ns"]) / 1e6
        for part in PARTS:
            assert line[part] >= -0.001
            sums[part] += line[part] * steps
    assert measured >= 40
    assert sum(sums.values()) == pytest.approx(by_clock, rel=0.03)
    assert sums["rest_ms"] < 0.05 * by_clock, sums
    assert all(sums[part] > 0 for part in ("data_ms", "forward_ms", "backward_ms", "optimizer_ms")), sums
    assert (sums["waiting_ms"] > 0.001 * by_clock) == (workers > 1), sums
    shown = jobs.run([ddprun_bin, "report", tmp_path / "run"]).stdout
    assert "\n  a step       " in shown and " ms: data " in shown and " in steps 1 to 60" in shown, shown
