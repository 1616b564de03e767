"""Tests of the communication in shared memory ("ddp.backend": "shared") with real jobs: sums in the order of ranks, lost workers,
and the bandwidth that `ddptrain bench` measures."""

import json

import jobs
import pytest

WORKERS = 3


def train(ddprun_bin, run_dir, config, workers=WORKERS, overrides=(), **env):
    return jobs.run([ddprun_bin, "--nproc-per-node", workers, "--run-dir", run_dir, config, *overrides], **env)


def manifest(run_dir) -> dict:
    return json.loads((run_dir / "checkpoints" / "latest" / "manifest.json").read_text())


def config_with(tmp_path, data, name, **ddp):
    return jobs.write_config(tmp_path / f"{name}.json", jobs.config(data, ddp=ddp))


def test_sums_are_in_the_order_of_ranks_in_any_bucket(ddprun_bin, data, tmp_path):
    """The size of the buckets determines the position of each gradient in its bucket. It must not affect any bit of the
    results."""
    results = set()
    for name, bucket_mb in (("one", 25), ("many", 0.01)):
        config = config_with(tmp_path, data, name, backend="shared", bucket_mb=bucket_mb)
        done = train(ddprun_bin, tmp_path / name, config)
        assert done.returncode == 0, done.stderr
        assert manifest(tmp_path / name)["summation"] == "ranks"
        results.add((str(jobs.losses(tmp_path / name)), jobs.weights_digest(tmp_path / name)))
    assert len(results) == 1
    # Gloo adds the values in a different order.
    gloo = config_with(tmp_path, data, "gloo", backend="gloo")
    assert train(ddprun_bin, tmp_path / "gloo", gloo).returncode == 0
    assert "summation" not in manifest(tmp_path / "gloo")
    for (step, loss), (_, expected) in zip(jobs.losses(tmp_path / "gloo"), jobs.losses(tmp_path / "one"), strict=True):
        assert loss == pytest.approx(expected, rel=1e-4), step


def test_two_workers_have_the_same_bits_with_both_backends(ddprun_bin, data, tmp_path):
    results = set()
    for backend in ("auto", "gloo"):
        assert train(ddprun_bin, tmp_path / backend, config_with(tmp_path, data, backend, backend=backend), 2).returncode == 0
        results.add((str(jobs.losses(tmp_path / backend)), jobs.weights_digest(tmp_path / backend)))
    assert len(results) == 1
    assert manifest(tmp_path / "auto")["summation"] == "ranks"


def test_a_lost_worker_changes_no_bit(ddprun_bin, data, tmp_path):
    config = config_with(tmp_path, data, "shared", backend="shared")
    assert train(ddprun_bin, tmp_path / "alone", config).returncode == 0
    killed = train(ddprun_bin, tmp_path / "killed", config, DDPTRAIN_FAULT="kill rank=1 step=9 phase=backward")
    assert killed.returncode == 0, killed.stderr
    assert jobs.losses(tmp_path / "killed") == jobs.losses(tmp_path / "alone")
    assert jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "alone")


def test_another_order_of_sums_is_reported_at_a_resume(ddprun_bin, data, tmp_path):
    run = tmp_path / "run"
    first = config_with(tmp_path, data, "first", backend="gloo")
    assert train(ddprun_bin, run, first, overrides=["max_steps=7"]).returncode == 0
    second = config_with(tmp_path, data, "second", backend="shared")
    done = train(ddprun_bin, run, second)
    assert done.returncode == 0, done.stderr
    assert "order of sums: of ranks instead of of Gloo or NCCL" in done.stderr


@pytest.mark.parametrize("backend", ["shared", "gloo"])
def test_the_bench_checks_each_collective(ddprun_bin, tmp_path, backend):
    operations = ["allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall", "sendrecv"]
    for operation in operations:
        done = jobs.run([ddprun_bin, "bench", operation, "--nproc-per-node", WORKERS, "--backend", backend, "--sizes", "12,60K,300K",
                         "--json"], cwd=tmp_path)
        assert done.returncode == 0, (operation, done.stderr)
        lines = [json.loads(line[line.index("{"):]) for line in done.stdout.splitlines() if "{" in line]
        assert [(line["op"], line["backend"], line["bytes"], line["wrong"]) for line in lines] == [
            (operation, backend, size, 0) for size in (12, 60 << 10, 300 << 10)]
        assert all(line["seconds"] > 0 and line["busbw"] > 0 for line in lines)


def test_a_backend_that_the_device_lacks_is_refused(ddprun_bin, data, tmp_path):
    done = train(ddprun_bin, tmp_path / "run", config_with(tmp_path, data, "nccl", backend="nccl"), 2)
    assert done.returncode == 2 and '"nccl" needs GPUs, but the workers compute on CPUs' in done.stderr, done.stderr
