"""Tests of data.type "table" with a typical table of a user: an index column, text, truth values, dates, separators and
missing values. The config names only the table, its target and the kind of the target."""

import json
import random
import subprocess

import jobs
import pytest


def write_table(file, rows: int = 400, seed: int = 1) -> None:
    """The price of a house depends on its area, its kind and its garden. The table has all kinds of columns."""
    draw = random.Random(seed)
    lines = [",area,kind,garden,sold,street,price,beds"]
    for i in range(rows):
        area, kind, garden, beds = draw.uniform(30, 200), draw.choice(["flat", "house", "villa"]), draw.choice(["yes", "no"]), draw.randint(1, 6)
        price = 50_000 + 1_000 * area + {"flat": 0, "house": 40_000, "villa": 120_000}[kind] + (30_000 if garden == "yes" else 0) + draw.gauss(0, 5_000)
        date = f"20{10 + i % 15}-{1 + i % 12:02}-{1 + i % 28:02}"
        cells = [i, f"{area:.1f}" if i % 9 else "NA", kind if i % 11 else "", garden, date, f"{draw.choice('abcdefgh')} street {i}",
                 f'"{price:,.0f}"' if i % 50 else "", beds if i % 7 else "?"]
        lines.append(",".join(map(str, cells)))
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_config(tmp_path, **data) -> str:
    if not (tmp_path / "houses.csv").exists():
        write_table(tmp_path / "houses.csv")
    content = {"data": {"type": "table", "dir": str(tmp_path), "train_table": "houses.csv", "target": "price", "predict": "number", **data}}
    return jobs.write_config(tmp_path / "train.json", content)


def trained(ddprun, run_dir, train, *changes, workers: int = 1, options=(), **env):
    done = jobs.run([ddprun, *options, "--nproc-per-node", workers, "--run-dir", run_dir, train, *changes], **env)
    assert done.returncode == 0, done.stderr
    return done


def predicted(ddptrain, run, lines):
    done = subprocess.run([ddptrain, "predict", run], input="".join(json.dumps(line) + "\n" for line in lines), capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_table_trains_with_a_config_that_names_only_its_target(ddprun_bin, ddptrain_bin, tmp_path):
    train = write_config(tmp_path)
    done = trained(ddprun_bin, tmp_path / "run", train)
    assert "(no name)  left out" in done.stderr and "an index that pandas or R wrote" in done.stderr, done.stderr
    assert "training rows without a value in 'price', which are not used: " in done.stderr, done.stderr
    last = jobs.metrics(tmp_path / "run", "eval")[-1]
    assert last["mean_absolute_error"] < 0.4 * last["baseline_mean_absolute_error"], "in the unit of the price"
    assert last["baseline_mean_absolute_error"] > 10_000
    assert f"test mean_absolute_error {last['mean_absolute_error']:.6g}; always the mean: {last['baseline_mean_absolute_error']:.6g}" in done.stdout, done.stdout
    assert jobs.losses(tmp_path / "run")[0][1] > 1e8, "the loss of a step is in the square of the unit"
    row = {"area": 100, "kind": "villa", "garden": True, "sold": "2015-06-01", "beds": None}
    code, answers, error = predicted(ddptrain_bin, tmp_path / "run", [{"row": row, "id": 5}, {"row": {**row, "kind": "castle"}}])
    assert code == 0 and answers[0]["id"] == 5 and 200_000 < answers[0]["number"] < 400_000, (answers, error)
    code, _, error = predicted(ddptrain_bin, tmp_path / "run", [{"row": {"area": "big", **{name: None for name in ("kind", "garden", "sold", "beds")}}}])
    assert code == 2 and "column 'area': expected a number, found 'big'" in error, error
    evaluated = jobs.run([ddptrain_bin, "eval", tmp_path / "run", "--json"])
    assert json.loads(evaluated.stdout)["mean_absolute_error"] == pytest.approx(last["mean_absolute_error"], rel=1e-6)


def test_a_lost_worker_and_a_resume_change_no_bit(ddprun_bin, ddptrain_bin, tmp_path):
    train = write_config(tmp_path)
    short = ("min_steps=0", "epochs=4", "schedule.type=constant", "checkpoint.every_steps=5", "data.validation.samples=40")
    trained(ddprun_bin, tmp_path / "calm", train, *short, workers=2)
    trained(ddprun_bin, tmp_path / "killed", train, *short, workers=2, DDPTRAIN_FAULT="kill rank=1 step=12 phase=backward")
    for steps in (6, 13, 30):
        trained(ddprun_bin, tmp_path / "resumed", train, *short, f"max_steps={steps}", workers=2)
    assert jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "calm")
    plans = {(tmp_path / run / "columns.json").read_text() for run in ("calm", "killed", "resumed")}
    assert len(plans) == 1


def test_a_resumed_run_uses_the_statistics_of_its_start(ddprun_bin, ddptrain_bin, tmp_path):
    train = write_config(tmp_path)
    trained(ddprun_bin, tmp_path / "run", train, "min_steps=0", "epochs=2")
    before = (tmp_path / "run/columns.json").read_text()
    write_table(tmp_path / "houses.csv", seed=2)
    refused = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", train, "min_steps=0", "epochs=4"])
    assert refused.returncode != 0 and "--data-changed" in refused.stderr, refused.stderr
    trained(ddprun_bin, tmp_path / "run", train, "min_steps=0", "epochs=4", options=["--data-changed"])
    assert (tmp_path / "run/columns.json").read_text() == before


def test_classes_may_be_text(ddprun_bin, ddptrain_bin, tmp_path):
    train = write_config(tmp_path, target="kind", predict="class", as_number=["price"])
    done = trained(ddprun_bin, tmp_path / "run", train)
    last = jobs.metrics(tmp_path / "run", "eval")[-1]
    assert last["accuracy"] > last["baseline_accuracy"] + 0.3, last
    assert "always the most frequent class: " in done.stdout, done.stdout
    row = {"area": 100, "garden": "no", "sold": "2015-06-01", "beds": 3, "price": 270_000}
    code, answers, error = predicted(ddptrain_bin, tmp_path / "run", [{"row": row}])
    assert code == 0 and answers[0]["class"] == "villa" and set(answers[0]["probabilities"]) == {"flat", "house", "villa"}, (answers, error)


def test_validate_shows_the_columns(ddprun_bin, tmp_path):
    done = jobs.run([ddprun_bin, "validate", write_config(tmp_path)])
    assert done.returncode == 0, done.stderr
    columns = {line.split()[0]: line for line in done.stderr.splitlines() if line.startswith("  ")}
    for name, words in {"price": "target, number", "area": "number ", "kind": "one-hot", "garden": "true or false", "sold": "date", "street": "left out"}.items():
        assert words in columns[name], done.stderr
    json.loads(done.stdout)


def test_all_problems_are_in_one_message(ddprun_bin, ddptrain_bin, tmp_path):
    (tmp_path / "houses.csv").write_text('when,size,price\n1/2/2024,"1,5",100\n3/4/2024,"2,5",200\n', encoding="utf-8")
    train = write_config(tmp_path, leave_out=["garden"])
    for command in ([ddprun_bin, "validate", train, "data.test_fraction=0.01"], [ddprun_bin, "--run-dir", tmp_path / "run", train, "data.test_fraction=0.01"]):
        done = jobs.run(command)
        assert done.returncode == 2, done.stderr
        for words in ("houses.csv: 3 problems:", "data.leave_out names the column 'garden'", "line 2: column 'when': '1/2/2024' is a date whose order",
                      "line 2: column 'size': '1,5' has a decimal comma", "The columns were interpreted as follows:"):
            assert words in done.stderr, done.stderr


def test_parquet_is_refused_with_the_conversion(ddprun_bin, ddptrain_bin, tmp_path):
    (tmp_path / "houses.csv").write_bytes(b"PAR1\x00\x00")
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", write_config(tmp_path)])
    assert done.returncode == 2 and "is a Parquet file; expected CSV. Convert it with: python3 -c" in done.stderr, done.stderr


# The cell of row i in a column "extra", and the text that the run prints about this column.
AWKWARD_COLUMNS = {
    "constant": (lambda i: "same", "has one value in all rows"),
    "only missing values": (lambda i: "NA", "has no values"),
    "half of the values missing": (lambda i: i % 5 if i % 2 else "", "number"),
    "identifiers": (lambda i: f"id-{i:05}", "most of its texts occur only once"),
    "numbered rows": (lambda i: 100_000 + i, "number"),
    "many texts": (lambda i: f"town {i * i % 151}", "embedding"),
    "dates": (lambda i: f"2024-{1 + i % 12:02}-{1 + i % 28:02}", "date"),
    "huge and tiny numbers": (lambda i: ("1e30", "-1e-30", "0")[i % 3], "number"),
    "texts that are not ASCII": (lambda i: ("Zürich", "東京", "")[i % 3], "one-hot"),
}
REFUSED_COLUMNS = {
    "percent signs": (lambda i: f"{i % 100} %", "line 2: column 'extra': '0 %' has a unit"),
    "decimal commas": (lambda i: f'"{i % 100},5"', "line 2: column 'extra': '0,5' has a decimal comma"),
    "dates of unknown order": (lambda i: f"{1 + i % 12}/{1 + i % 28}/2024", "line 2: column 'extra': '1/1/2024' is a date whose order of day and month is unknown"),
    "a text among numbers": (lambda i: i if i != 30 else "about 3", "line 32: column 'extra': 'about 3' is not a number"),
}


def write_awkward(tmp_path, cell, rows: int = 300) -> str:
    draw = random.Random(3)
    lines = ["area,extra,price"]
    for i in range(rows):
        area = draw.uniform(30, 200)
        lines.append(f"{area:.1f},{cell(i)},{1_000 * area + draw.gauss(0, 5_000):.0f}")
    (tmp_path / "houses.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return write_config(tmp_path)


@pytest.mark.parametrize("name", AWKWARD_COLUMNS)
def test_a_table_with_an_awkward_column_trains(ddprun_bin, ddptrain_bin, tmp_path, name):
    cell, words = AWKWARD_COLUMNS[name]
    done = trained(ddprun_bin, tmp_path / "run", write_awkward(tmp_path, cell), "min_steps=200", "epochs=1")
    [line] = [line for line in done.stderr.splitlines() if "  extra " in line]
    assert words in line, done.stderr
    last = jobs.metrics(tmp_path / "run", "eval")[-1]
    assert last["mean_absolute_error"] < 0.5 * last["baseline_mean_absolute_error"], last


@pytest.mark.parametrize("name", REFUSED_COLUMNS)
def test_an_ambiguous_column_is_refused(ddprun_bin, ddptrain_bin, tmp_path, name):
    cell, words = REFUSED_COLUMNS[name]
    done = jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", write_awkward(tmp_path, cell)])
    assert done.returncode == 2 and "houses.csv: 1 problem:" in done.stderr and words in done.stderr, done.stderr
    assert not (tmp_path / "run/metrics.jsonl").exists()


def test_twenty_rows_suffice(ddprun_bin, ddptrain_bin, tmp_path):
    trained(ddprun_bin, tmp_path / "run", write_awkward(tmp_path, lambda i: "ab"[i % 2], rows=20))
    last = jobs.metrics(tmp_path / "run", "eval")[-1]
    assert last["mean_absolute_error"] < 0.5 * last["baseline_mean_absolute_error"], last
