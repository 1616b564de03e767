"""Tests of a user's worker program with its own task and data under ddprun: the model must learn, the program's metrics must
be recorded under their names, and no state may be lost if a worker is killed."""

import json
import pathlib
import random
import shutil
import signal

import jobs
import jsonschema
import pytest

SCHEMA = json.loads((pathlib.Path(__file__).resolve().parents[2] / "docs/schemas/describe.schema.json").read_text(encoding="utf-8"))


@pytest.fixture
def line_worker(ddprun_bin):
    return ddprun_bin.parent.parent / "tests" / "own_worker" / "line_worker"


def describe(worker) -> dict:
    done = jobs.run([worker, "--describe"])
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def script(path: pathlib.Path, body: str) -> pathlib.Path:
    path.write_text("#!/bin/sh\n" + body, encoding="utf-8")
    path.chmod(0o755)
    return path


def small(points, **more) -> dict:
    return {"name": "line", "data": {"dir": str(points)}, "max_steps": 4, "batch_size": 16, "optimizer": {"type": "sgd", "lr": 0.1}, **more}


@pytest.fixture
def points(tmp_path):
    folder = tmp_path / "points"
    folder.mkdir()
    draw = random.Random(5)
    for name, count in (("train", 203), ("test", 50)):
        rows = [(draw.uniform(-1, 1), draw.uniform(-1, 1)) for _ in range(count)]
        (folder / f"{name}.csv").write_text("".join(f"{a:.6f},{b:.6f},{2 * a - 3 * b + 0.5:.6f}\n" for a, b in rows), encoding="utf-8")
    return folder


def test_a_line_through_points_of_a_csv_file(ddprun_bin, line_worker, tmp_path, points):
    worker = line_worker
    config = {"name": "line", "data": {"dir": str(points)}, "epochs": 20, "batch_size": 16, "micro_batch_size": 3,
              "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9}, "checkpoint": {"every_steps": 50}, "log": {"every_steps": 1}}
    train = jobs.write_config(tmp_path / "train.json", config)
    for run, fault in (("calm", ""), ("killed", "kill rank=1 step=77")):
        done = jobs.run([ddprun_bin, "--worker", worker, "--nproc-per-node", 2, "--run-dir", tmp_path / run, train], DDPTRAIN_FAULT=fault)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "done: test mean_error 0.0" in done.stdout, done.stdout
    assert len(jobs.report(tmp_path / "killed")["rounds"]) == 2
    assert jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "calm")
    figures = [[step["gradient_norm"] for step in jobs.metrics(tmp_path / run, "step")] for run in ("calm", "killed")]
    assert figures[0] == figures[1] and all(norm > 0 for norm in figures[0])
    last = jobs.metrics(tmp_path / "killed", "eval")[-1]
    assert last["mean_error"] < 0.01 and last["samples"] == 50 and "accuracy" not in last
    assert jobs.report(tmp_path / "killed")["evaluation"]["mean_error"] == last["mean_error"]


def test_a_program_without_a_worker_is_reported(ddprun_bin, line_worker, tmp_path, points):
    train = jobs.write_config(tmp_path / "train.json", {"name": "line", "data": {"dir": str(points)}})
    worker = script(tmp_path / "worker", f'[ "$1" != --describe ] || exec {line_worker} --describe\n')
    for workers in (1, 2):
        done = jobs.run([ddprun_bin, "--worker", worker, "--nproc-per-node", workers, "--run-dir", tmp_path / f"run{workers}", train])
        assert done.returncode == 2, done.stdout + done.stderr
        assert "it exited with code 0 without sending a message to ddprun" in done.stderr and "done" not in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(("body", "why"), [
    ("exit 0", "expected a JSON object, found nothing"),
    ("echo training", "expected a JSON object, found 'training\\u000a'"),
    ("echo first >&2; echo cannot open libtorch.so >&2; exit 127", "it ended with exit code 127 and printed: cannot open libtorch.so"),
    ("kill -SEGV $$", "it was ended by SIGSEGV"),
    ("echo '{\"format\": 7}'", 'expected "format": 1, found 7'),
    ("while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done", "it printed more than 1 MiB"),
])
def test_a_failing_describe_is_one_line(ddprun_bin, tmp_path, points, body, why):
    train = jobs.write_config(tmp_path / "train.json", small(points, worker="worker"))
    worker = script(tmp_path / "worker", body)
    for command in (["--run-dir", tmp_path / "run", train], ["validate", train], ["--dry-run", train]):
        done = jobs.run([ddprun_bin, *command])
        assert done.returncode == 2 and done.stdout == "", done.stdout + done.stderr
        assert done.stderr == (f"ddprun: worker '{worker}' (\"worker\" of the config): the command {worker} --describe failed: {why}. "
                               "A worker program must be built with ddprun's library; see docs/own-worker.md\n")
    assert not (tmp_path / "run").exists()


def test_a_program_describes_itself(line_worker, ddptrain_bin):
    about = describe(line_worker)
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(about, SCHEMA)
    assert about["name"] == "line_worker" and about["version"] == "1.0" and about["libtorch"].startswith("2.")
    assert about["keys"] == [{"name": "loss", "type": "string", "help": "Function of the prediction error; the loss is its mean.", "default": "square",
                              "choices": ["square", "absolute"]}]
    of_ours = describe(ddptrain_bin)
    jsonschema.validate(of_ours, SCHEMA)
    assert of_ours["name"] == "ddptrain" and of_ours["keys"] == []
    assert 'task.loss: "square" or "absolute"; default "square"' in jobs.run([line_worker, "--help"]).stdout
    schema = json.loads(jobs.run([line_worker, "--schema"]).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate({"data": {"dir": "d"}, "worker": "x", "task": {"loss": "absolute"}}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"data": {"dir": "d"}, "task": {"los": "absolute"}}, schema)


def test_the_config_names_the_program_and_its_keys(ddprun_bin, line_worker, tmp_path, points):
    shutil.copy(line_worker, tmp_path / "mine")
    (tmp_path / "deep").mkdir()
    train = jobs.write_config(tmp_path / "deep/train.json", small(points, worker="../mine", task={"loss": "absolute"}))
    shown = json.loads(jobs.run([ddprun_bin, "validate", train]).stdout)
    assert shown["worker"] == str(tmp_path / "mine") and shown["task"] == {"loss": "absolute"}
    shown = json.loads(jobs.run([ddprun_bin, "validate", "--worker", line_worker, train, "worker=nothing", "task.loss=square"]).stdout)
    assert shown["task"] == {"loss": "square"}
    plan = json.loads(jobs.run([ddprun_bin, "--dry-run", "--json", train]).stdout)
    assert plan["values"]["worker"] == {"value": str(tmp_path / "mine"), "source": '"worker" of the config'}
    assert plan["command"][0] == str(tmp_path / "mine")
    for command in ([train, "task.los=square"], ["validate", train, "task.los=square"], ["--dry-run", train, "task.los=square"]):
        done = jobs.run([ddprun_bin, *command])
        assert done.returncode == 2, done.stdout + done.stderr
        assert done.stderr == "ddprun: override 'task.los=square': unknown key 'los' (/task/los). Did you mean 'loss'?\n"

    def start(*words):
        return jobs.run([ddprun_bin, "--run-dir", tmp_path / "run", "--nproc-per-node", 2, train, *words])

    done = start()
    assert done.returncode == 0 and "another one" not in done.stdout, done.stdout + done.stderr
    losses = [line["loss"] for line in jobs.metrics(tmp_path / "run", "eval")]
    assert losses == [line["mean_error"] for line in jobs.metrics(tmp_path / "run", "eval")], "the loss must be the absolute error"
    record = json.loads((tmp_path / "run/worker.json").read_text(encoding="utf-8"))
    assert record["program"] == str(tmp_path / "mine") and record["version"] == "1.0" and len(record["xxh3_128"]) == 32
    done = start("max_steps=6", "task.loss=square")
    assert done.returncode == 2 and '/task/loss: "absolute" before, "square" now' in done.stderr, done.stderr
    found = json.loads(jobs.run([tmp_path / "mine", "eval", "--json", tmp_path / "run"]).stdout)
    assert found["loss"] == pytest.approx(losses[-1]) and found["samples"] == 50, "eval must measure the trained model"
    ddptrain = jobs.run([ddprun_bin.parent / "ddptrain", "eval", tmp_path / "run"])
    assert ddptrain.returncode == 2, ddptrain.stderr
    assert ddptrain.stderr == (f"ddptrain: {tmp_path}/run belongs to a model of the worker program {tmp_path}/mine; evaluate it with {tmp_path}/mine eval "
                               f"{tmp_path}/run instead\n")
    with (tmp_path / "mine").open("ab") as program:
        program.write(b"another build")
    done = start("max_steps=6")
    assert done.returncode == 0 and "the worker program has changed: the last start used mine 1.0 (" in done.stdout, done.stdout + done.stderr
    assert json.loads((tmp_path / "run/worker.json").read_text(encoding="utf-8"))["xxh3_128"] != record["xxh3_128"]


@pytest.mark.parametrize(("second", "decisions"), [("other", ["regroup", "restart", "end"]), ("of-rank-1", ["regroup", "end"])])
def test_a_replacement_of_another_build_never_joins_live(ddprun_bin, line_worker, tmp_path, points, second, decisions):
    """If the program is rebuilt while the job runs, a replacement worker would run a different build, so all ranks restart from
    the checkpoint. If the ranks already ran different builds at the start, a replacement joins without a restart."""
    for name in ("first", "other"):
        shutil.copy(line_worker, tmp_path / name)
    with (tmp_path / "other").open("ab") as program:
        program.write(b"another build")
    differs = 'mkdir started-$RANK 2>/dev/null' if second == "other" else '[ "$RANK" = 0 ]'
    worker = script(tmp_path / "worker", f"cd {tmp_path}\n"
                    f'if [ "$1" = --describe ] || {differs}; then exec ./first "$@"; else exec ./other "$@"; fi\n')
    train = jobs.write_config(tmp_path / "train.json", small(points, epochs=3, max_steps=30, checkpoint={"every_steps": 10}))
    calm = jobs.run([ddprun_bin, "--worker", tmp_path / "first", "--nproc-per-node", 2, "--run-dir", tmp_path / "calm", train])
    assert calm.returncode == 0, calm.stderr
    done = jobs.run([ddprun_bin, "--worker", worker, "--nproc-per-node", 2, "--run-dir", tmp_path / "run", train], DDPTRAIN_FAULT="kill rank=1 step=17")
    assert done.returncode == 0, done.stdout + done.stderr
    assert [r["decision"] for r in jobs.report(tmp_path / "run")["rounds"]] == decisions
    message = "rank 1 runs another build of the worker program than the ranks that hold the state"
    assert (message in done.stdout + done.stderr) == (second == "other"), done.stdout + done.stderr
    restarts = [line["step"] for line in jobs.metrics(tmp_path / "run", "restart")]
    assert restarts == ([10] if second == "other" else []), restarts
    assert jobs.weights_digest(tmp_path / "run") == jobs.weights_digest(tmp_path / "calm")


def test_lora_on_custom_layers_is_refused(ddprun_bin, line_worker, tmp_path, points):
    train = jobs.write_config(tmp_path / "train.json", small(points, model={"lora": {"rank": 2}}))
    done = jobs.run([ddprun_bin, "--worker", line_worker, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 2 and "only the built-in models have low-rank updates; expected model.lora.rank 0, found 2" in done.stderr, done.stderr


def test_only_built_in_tasks_mix_images(ddprun_bin, line_worker, tmp_path, points):
    train = jobs.write_config(tmp_path / "train.json", small(points))
    done = jobs.run([ddprun_bin, "--worker", line_worker, "--run-dir", tmp_path / "run", train, "data.augment.mixup=0.2"])
    assert done.returncode == 2 and "data.augment.mixup is 0.2, but the task of this worker does not support mixup: set it to 0, or remove the key" in done.stderr, done.stderr


def test_synthetic_data_is_refused_for_custom_data(ddprun_bin, line_worker, tmp_path, points):
    train = jobs.write_config(tmp_path / "train.json", small(points, data={"type": "synthetic"}))
    done = jobs.run([ddprun_bin, "--worker", line_worker, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 2 and 'data.type "synthetic" works only with ddptrain; this program reads its data from data.dir' in done.stderr, done.stderr


def test_the_best_by_a_custom_metric(ddprun_bin, line_worker, tmp_path, points):
    worker = line_worker
    config = {"name": "line", "data": {"dir": str(points)}, "epochs": 3, "batch_size": 16, "eval_every_steps": 5,
              "optimizer": {"type": "sgd", "lr": 0.1}, "checkpoint": {"keep": 1, "keep_best": 2, "best_by": "mean_error", "best_is": "lowest"}}
    train = jobs.write_config(tmp_path / "train.json", config)
    done = jobs.run([ddprun_bin, "--worker", worker, "--run-dir", tmp_path / "run", train])
    assert done.returncode == 0, done.stdout + done.stderr
    evaluated = {line["step"]: line["mean_error"] for line in jobs.metrics(tmp_path / "run", "eval")}
    assert sorted(evaluated) == [5, 10, 13, 15, 20, 25, 26, 30, 35, 39]
    kept = {int(folder.name.removeprefix("step-")) for folder in (tmp_path / "run/checkpoints").glob("step-*")}
    assert kept == {*sorted(evaluated, key=evaluated.get)[:2], 39}
    done = jobs.run([ddprun_bin, "--worker", worker, "--run-dir", tmp_path / "other", train, "checkpoint.best_by=accuracy"])
    assert done.returncode == 2 and "the metric 'accuracy'" in done.stderr and "mean_error" in done.stderr, done.stderr


def test_a_stop_during_describe_leaves_no_process(ddprun_bin, tmp_path, points):
    """`PROGRAM --describe` runs in a separate process group, so Ctrl-C in a terminal signals only ddprun. ddprun must then end
    the program."""
    worker = script(tmp_path / "worker", f"echo $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nexec sleep 600\n")
    for number in (signal.SIGINT, signal.SIGTERM):
        config = jobs.write_config(tmp_path / "train.json", {"data": {"dir": str(points)}})
        process = jobs.start([ddprun_bin, "--worker", worker, "--run-dir", tmp_path / "run", config])
        jobs.wait_for((tmp_path / "pid").exists, "the program did not start")
        pid = int((tmp_path / "pid").read_text())
        process.send_signal(number)
        process.communicate(timeout=20)
        assert process.returncode == -number, "the signal must end ddprun, which a shell reports as 128 + the number"
        assert not pathlib.Path(f"/proc/{pid}").exists()
        (tmp_path / "pid").unlink()
