"""Tests of tables of numbers. A network trains on CSV files and on arrays. A lost worker must not change any bit of the
results. Changed files must be detected, and errors in the files must be reported with their position."""

import json
import random

import jobs
import numpy
import pytest
import safetensors.numpy

TRAINED = 180


def rows(count: int, seed: int) -> list[tuple]:
    draw = random.Random(seed)
    points = [(draw.uniform(-5, 5), draw.uniform(100, 300)) for _ in range(count)]
    return [(i, a, b, round(a * a - b / 50 + draw.gauss(0, 0.1), 6), "cat" if a > 0 else "dog") for i, (a, b) in enumerate(points)]


def write_tables(folder) -> None:
    folder.mkdir()
    for name, count, seed in (("train", 200, 1), ("test", 50, 2)):
        table = rows(count, seed)
        (folder / f"{name}.csv").write_text("id,a,b,y,pet\n" + "".join(",".join(map(str, row)) + "\n" for row in table), encoding="utf-8")
        # The values are rounded from double to float32, like the values of the CSV file when it is read.
        numpy.save(folder / f"{name}_x.npy", numpy.array([row[1:3] for row in table]))
        safetensors.numpy.save_file({"y": numpy.array([row[3] for row in table], numpy.float32)}, folder / f"{name}_y.safetensors")


def config(tmp_path, **data) -> dict:
    write_tables(tmp_path / "data")
    return jobs.config(tmp_path / "data", model={"type": "mlp", "hidden": [16]}, epochs=2, batch_size=16, optimizer={"type": "adamw", "lr": 0.01},
                       checkpoint={"every_steps": 7, "keep": 2, "keep_best": 1, "best_by": "validation_loss"},
                       data={"type": "csv", "target": "y", "predict": "number", "leave_out": ["id", "pet"], "ledger": True, "validation": {"samples": 200 - TRAINED}, **data})


def trained(ddprun, run_dir, train, *changes, workers: int = 2, **env):
    done = jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", run_dir, train, *changes], **env)
    assert done.returncode == 0, done.stderr
    return done


def test_numbers_are_predicted_and_a_lost_worker_changes_no_bit(ddprun_bin, ddptrain_bin, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", config(tmp_path))
    calm = trained(ddprun_bin, tmp_path / "calm", train)
    assert "mean_absolute_error" in calm.stdout and "validation_loss" in calm.stdout
    evaluations = jobs.metrics(tmp_path / "calm", "eval")
    assert evaluations[-1]["loss"] < evaluations[0]["loss"] and evaluations[-1]["validation_loss"] < evaluations[0]["validation_loss"]
    trained(ddprun_bin, tmp_path / "killed", train, DDPTRAIN_FAULT="kill rank=1 step=12 phase=backward")
    for workers, steps in ((2, 6), (1, 13), (3, 30)):
        trained(ddprun_bin, tmp_path / "changing", train, f"max_steps={steps}", workers=workers)
    assert jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "calm")
    for run in ("calm", "killed", "changing"):
        jobs.assert_each_sample_once(tmp_path / run, epochs=2, samples=TRAINED)
    changed = (tmp_path / "data/train.csv").read_text().splitlines()
    changed[1] = changed[1].replace(".", ".5", 1)
    (tmp_path / "data/train.csv").write_text("\n".join(changed), encoding="utf-8")
    refused = jobs.run([ddprun_bin, "--run-dir", tmp_path / "calm", train, "epochs=3"])
    assert refused.returncode != 0 and "--data-changed" in refused.stderr, refused.stderr


def test_arrays_and_csv_files_train_equally(ddprun_bin, ddptrain_bin, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", config(tmp_path, standardize=False))
    trained(ddprun_bin, tmp_path / "csv", train, "max_steps=5", workers=1)
    arrays = json.loads(train.read_text())
    arrays["data"] = {"type": "arrays", "dir": str(tmp_path / "data"), "predict": "number", "validation": arrays["data"]["validation"],
                      **{f"{split}_{kind}": f"{split}_{file}" for split in ("train", "test") for kind, file in (("inputs", "x.npy"), ("targets", "y.safetensors:y"))}}
    trained(ddprun_bin, tmp_path / "arrays", jobs.write_config(tmp_path / "arrays.json", arrays), "max_steps=5", workers=1)
    assert jobs.weights_digest(tmp_path / "arrays") == jobs.weights_digest(tmp_path / "csv")
    assert jobs.losses(tmp_path / "arrays") == jobs.losses(tmp_path / "csv")


def test_classes_by_name(ddprun_bin, ddptrain_bin, tmp_path):
    train = jobs.write_config(tmp_path / "train.json", config(tmp_path, target="pet", predict="class", class_names=["cat", "dog"], leave_out=["id", "y"]))
    trained(ddprun_bin, tmp_path / "run", train, workers=1)
    assert jobs.metrics(tmp_path / "run", "eval")[-1]["accuracy"] > 0.9


@pytest.mark.parametrize("changes,words", [
    (("data.leave_out=[]",), "train.csv:2: column 'pet': expected a number, found '"),
    (("data.target=z",), "train.csv: has no column 'z', which data.target names; its columns are 'id', 'a', 'b', 'y', 'pet'"),
    (("model.type=cnn",), 'expected "mlp", since the samples of data.type "csv" are not images, found "cnn" (/model/type)'),
    (("label_smoothing=0.1",), 'expected 0 or no value, since data.predict is "number" and such targets are not labels (/label_smoothing)'),
    (("checkpoint.best_by=accuracy",), "its metrics are loss, mean_absolute_error, validation_loss, validation_mean_absolute_error"),
    (("data.train_table=none.csv",), "none.csv: cannot be mapped: No such file or directory"),
])
def test_invalid_tables_are_refused(ddprun_bin, ddptrain_bin, tmp_path, changes, words):
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", jobs.write_config(tmp_path / "train.json", config(tmp_path)), *changes])
    assert done.returncode == 2 and words in done.stderr, done.stderr
