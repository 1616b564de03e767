"""Tests of the files that ddptrain shares with other programs: the package safetensors and TensorBoard must be able to read
the files of ddptrain, and ddptrain must be able to read their files."""

import ctypes
import ctypes.util
import pathlib
import re

import jobs
import pytest

numpy = pytest.importorskip("numpy")
safetensors = pytest.importorskip("safetensors")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

CNN_SHAPES = {
    "conv1.weight": (32, 1, 3, 3), "conv1.bias": (32,), "conv2.weight": (64, 32, 3, 3), "conv2.bias": (64,),
    "fc1.weight": (128, 64 * 7 * 7), "fc1.bias": (128,), "fc2.weight": (10, 128), "fc2.bias": (10,),
}
HANGING = {"type": "sgd", "lr": 1e-30}  # the learning rate is so small that a step does not change a weight of ordinary size


def train(ddptrain, folder: pathlib.Path, data: pathlib.Path, run_dir: str = "run", **changes):
    config = jobs.write_config(folder / f"{run_dir}.json", jobs.config(data, **changes))
    return jobs.run([ddptrain, "--run-dir", folder / run_dir, config])


def latest_model(run_dir: pathlib.Path) -> pathlib.Path:
    return run_dir / "checkpoints" / "latest" / "model.safetensors"


class Xxh128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def xxh3_128() -> callable:
    """Returns a function that computes the XXH3-128 hash of bytes in hexadecimal. The function calls the system's libxxhash,
    and returns the same text as the Python package xxhash."""
    name = ctypes.util.find_library("xxhash")
    if name is None:
        pytest.skip("needs libxxhash")
    function = ctypes.CDLL(name).XXH3_128bits
    function.restype, function.argtypes = Xxh128, [ctypes.c_char_p, ctypes.c_size_t]
    return lambda content: "{0.high:016x}{0.low:016x}".format(function(content, len(content)))


def documented_reader() -> dict:
    """Returns the functions of the checkpoint reader that is printed in docs/checkpoints.md."""
    page = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S).group(1), names)
    return names


def random_weights(seed: int) -> dict:
    generator = numpy.random.default_rng(seed)
    weights = {name: generator.uniform(0.01, 0.05, shape).astype(numpy.float32) for name, shape in CNN_SHAPES.items()}
    return dict(sorted(weights.items(), reverse=True))


def assert_equal(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        assert found[name].tobytes() == tensor.tobytes(), name


def test_safetensors_reads_model_and_optimizer(ddptrain_bin, data, tmp_path):
    done = train(ddptrain_bin, tmp_path, data, model={"type": "cnn"}, max_steps=3)
    assert done.returncode == 0, done.stderr

    model = safetensors_numpy.load_file(latest_model(tmp_path / "run"))
    assert {name: tensor.shape for name, tensor in model.items()} == CNN_SHAPES
    assert all(tensor.dtype == numpy.float32 and numpy.isfinite(tensor).all() for tensor in model.values())

    optimizer = safetensors_numpy.load_file(latest_model(tmp_path / "run").with_name("optimizer.safetensors"))
    for name, shape in CNN_SHAPES.items():
        assert optimizer[f"{name}.exp_avg"].shape == optimizer[f"{name}.exp_avg_sq"].shape == shape
        assert optimizer[f"{name}.step"] == 3


def test_training_starts_from_safetensors_weights(ddptrain_bin, data, tmp_path):
    weights = random_weights(1)
    safetensors_numpy.save_file(weights, tmp_path / "init.safetensors", metadata={"made_by": "Python"})
    done = train(ddptrain_bin, tmp_path, data, model={"type": "cnn", "init": str(tmp_path / "init.safetensors")},
                 optimizer=HANGING, max_steps=1)
    assert done.returncode == 0, done.stderr
    assert_equal(safetensors_numpy.load_file(latest_model(tmp_path / "run")), weights)


def test_a_checkpoint_round_trips_through_python(ddptrain_bin, data, tmp_path):
    assert train(ddptrain_bin, tmp_path, data, "first", model={"type": "cnn"}, max_steps=3).returncode == 0
    weights = safetensors_numpy.load_file(latest_model(tmp_path / "first"))
    safetensors_numpy.save_file(weights, tmp_path / "again.safetensors")
    done = train(ddptrain_bin, tmp_path, data, "second", model={"type": "cnn", "init": str(tmp_path / "again.safetensors")},
                 optimizer=HANGING, max_steps=1)
    assert done.returncode == 0, done.stderr
    back = safetensors_numpy.load_file(latest_model(tmp_path / "second"))
    assert back.keys() == weights.keys()
    for name, tensor in weights.items():
        numpy.testing.assert_allclose(back[name], tensor, rtol=0, atol=1e-29, err_msg=name)


def test_the_documented_reader_agrees_with_ddptrain(ddptrain_bin, data, tmp_path):
    digest, reader = xxh3_128(), documented_reader()
    done = train(ddptrain_bin, tmp_path, data, checkpoint={"every_steps": 7, "keep": 3, "keep_best": 1})
    assert done.returncode == 0, done.stderr
    checkpoints = tmp_path / "run" / "checkpoints"
    folder, manifest = reader["newest_valid"](checkpoints, digest)
    assert manifest["step"] == 40 and manifest["finished"] and manifest["position"] == 0 and manifest["epoch"] == 2
    assert float(manifest["evaluation"]["accuracy"]) == jobs.metrics(tmp_path / "run", "eval")[-1]["accuracy"]
    model, optimizer = reader["load"](folder)
    assert_equal(model, safetensors_numpy.load_file(latest_model(tmp_path / "run")))
    assert set(optimizer) == {f"{name}.{field}" for name in model for field in ("exp_avg", "exp_avg_sq", "step")}

    damaged = folder / "optimizer.safetensors"
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    older, manifest = reader["newest_valid"](checkpoints, digest)
    assert manifest["step"] == 35 and older != folder
    text = (older / "manifest.json").read_text(encoding="utf-8")
    (older / "manifest.json").write_text(text.replace('"world_size": 1', '"world_size": 2'), encoding="utf-8")
    again = train(ddptrain_bin, tmp_path, data, checkpoint={"every_steps": 7, "keep": 3, "keep_best": 1}, epochs=3)
    assert again.returncode == 0, again.stderr
    taken = jobs.metrics(tmp_path / "run", "resume")[-1]["step"]
    assert taken < 35 and {p.name for p in checkpoints.glob("*.bad")} == {"step-000000040.bad", "step-000000035.bad"}


@pytest.mark.parametrize("of_run", [True, False], ids=["run", "checkpoint"])
def test_exported_weights_match_and_start_another_run(ddptrain_bin, data, tmp_path, of_run):
    assert train(ddptrain_bin, tmp_path, data, "first", model={"type": "cnn"}, max_steps=3).returncode == 0
    source = tmp_path / "first" if of_run else tmp_path / "first" / "checkpoints" / "latest"
    done = jobs.run([ddptrain_bin, "--export-weights", source, tmp_path / "weights.safetensors"])
    assert done.returncode == 0, done.stderr
    assert "step 3" in done.stdout and "weights.safetensors" in done.stdout
    weights = safetensors_numpy.load_file(tmp_path / "weights.safetensors")
    assert_equal(weights, safetensors_numpy.load_file(latest_model(tmp_path / "first")))
    with safetensors.safe_open(tmp_path / "weights.safetensors", "numpy") as file:
        assert file.metadata()["format"] == "pt" and file.metadata()["ddprun.step"] == "3"
    for name, begin in (("second", tmp_path / "weights.safetensors"), ("third", tmp_path / "first" / "checkpoints" / "latest")):
        done = train(ddptrain_bin, tmp_path, data, name, model={"type": "cnn", "init": str(begin)}, optimizer=HANGING, max_steps=1)
        assert done.returncode == 0, done.stderr
        for key, tensor in safetensors_numpy.load_file(latest_model(tmp_path / name)).items():
            numpy.testing.assert_allclose(tensor, weights[key], rtol=0, atol=1e-29, err_msg=key)


def test_weights_of_a_damaged_checkpoint_are_not_exported(ddptrain_bin, data, tmp_path):
    assert train(ddptrain_bin, tmp_path, data, max_steps=3).returncode == 0
    model = latest_model(tmp_path / "run")
    model.write_bytes(model.read_bytes()[:-1])
    for source in (tmp_path / "run", tmp_path / "run" / "checkpoints" / "latest", tmp_path, tmp_path / "nowhere"):
        done = jobs.run([ddptrain_bin, "--export-weights", source, tmp_path / "weights.safetensors"])
        assert done.returncode == 2, done.stderr
        assert str(source) in done.stderr or "model.safetensors" in done.stderr
    assert not (tmp_path / "weights.safetensors").exists()


@pytest.mark.parametrize("damage, named", [
    (lambda w: w.update({"fc2.bias": numpy.zeros(11, numpy.float32)}), "fc2.bias"),
    (lambda w: w.pop("conv1.weight"), "conv1.weight"),
    (lambda w: w.update({"fc9.weight": numpy.zeros(1, numpy.float32)}), "fc9.weight"),
], ids=["other-shape", "missing", "surplus"])
def test_initial_weights_of_another_network_are_refused_by_name(ddptrain_bin, data, tmp_path, damage, named):
    weights = random_weights(2)
    damage(weights)
    safetensors_numpy.save_file(weights, tmp_path / "init.safetensors")
    done = train(ddptrain_bin, tmp_path, data, model={"type": "cnn", "init": str(tmp_path / "init.safetensors")})
    assert done.returncode == 2, done.stderr
    assert named in done.stderr and "init.safetensors" in done.stderr


def read_scalars(folder: pathlib.Path) -> dict[str, list]:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    accumulator = event_accumulator.EventAccumulator(str(folder), size_guidance={event_accumulator.SCALARS: 0})
    accumulator.Reload()
    return {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}


PARTS = ("data_ms", "forward_ms", "backward_ms", "waiting_ms", "optimizer_ms", "rest_ms")


def assert_scalars_are_the_metrics(run_dir: pathlib.Path) -> None:
    """Checks that TensorBoard's event files contain all metrics of the steps and evaluations in metrics.jsonl, in float32, and
    no other metrics."""
    scalars = read_scalars(run_dir / "tensorboard")
    expected = {}
    figures = ("loss", "lr", "gradient_norm", "samples_per_s", "peak_memory_bytes", "largest_peak_memory_bytes")
    for event, prefix, fields in (("step", "train", figures), ("step", "time", PARTS), ("eval", "eval", ("loss", "accuracy"))):
        for field in fields:
            expected[f"{prefix}/{field}"] = [(e["step"], numpy.float32(e[field])) for e in jobs.metrics(run_dir, event)]
    assert {tag: [(s.step, numpy.float32(s.value)) for s in events] for tag, events in scalars.items()} == expected
    for events in scalars.values():
        assert all(a.wall_time <= b.wall_time for a, b in zip(events, events[1:]))


@pytest.mark.needs_torch_python  # TensorBoard is installed in the same Python as torch
def test_tensorboard_reads_the_metrics(ddptrain_bin, data, tmp_path):
    done = train(ddptrain_bin, tmp_path, data)
    assert done.returncode == 0, done.stderr
    assert len(jobs.metrics(tmp_path / "run", "step")) == 40
    assert_scalars_are_the_metrics(tmp_path / "run")


@pytest.mark.needs_torch_python
def test_tensorboard_drops_repeated_steps(ddprun_bin, ddptrain_bin, data, tmp_path):
    """The run was killed at step 12 and resumed from the checkpoint of step 7. The event files contain steps 8 to 12 twice;
    TensorBoard must show each step once."""
    config = jobs.write_config(tmp_path / "train.json", jobs.config(data))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1, "--run-dir", tmp_path / "run", config], DDPTRAIN_FAULT="kill rank=0 step=12")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "run" / "tensorboard").iterdir())) == 2
    assert [e["step"] for e in jobs.metrics(tmp_path / "run", "step")] == list(range(1, 41))
    assert_scalars_are_the_metrics(tmp_path / "run")
