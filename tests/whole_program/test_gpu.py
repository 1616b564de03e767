"""What only a machine with an NVIDIA GPU can show: `./dev gpu`. Everywhere else these tests are skipped and counted as such."""

import pathlib

import jobs
import pytest

GPUS = len([p for p in pathlib.Path("/dev").glob("nvidia[0-9]*") if p.name[6:].isdigit()])
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(GPUS == 0, reason="no NVIDIA GPU on this machine")]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> pathlib.Path:
    return jobs.write_small_dataset(tmp_path_factory.mktemp("data"))


def train(ddprun, folder, dataset, workers, fault="", environment=None, **changes):
    folder.mkdir(exist_ok=True)
    config = jobs.write_config(folder / "train.json", jobs.config(dataset, device="cuda", **changes))
    done = jobs.run([ddprun, "--nproc-per-node", workers, "--run-dir", folder / "run", config], timeout=300, DDPTRAIN_FAULT=fault,
                    **(environment or {}))
    return done, folder / "run"


def test_one_worker_trains_on_the_gpu_and_loses_no_sample(ddprun_bin, data, tmp_path):
    done, calm = train(ddprun_bin, tmp_path / "calm", data, 1, model={"type": "cnn"})
    assert done.returncode == 0, done.stderr
    done, struck = train(ddprun_bin, tmp_path / "struck", data, 1, "kill rank=0 step=17", model={"type": "cnn"})
    assert done.returncode == 0, done.stderr
    assert [s for s, _ in jobs.losses(struck)] == list(range(1, 41))
    assert jobs.losses(struck)[-1][1] == pytest.approx(jobs.losses(calm)[-1][1], rel=1e-3)
    jobs.assert_each_sample_once(struck, 2)


def test_the_gpu_and_the_cpu_agree(ddprun_bin, data, tmp_path):
    slow = {"optimizer": {"type": "sgd", "lr": 0.005}, "epochs": 1}
    done, gpu = train(ddprun_bin, tmp_path / "gpu", data, 1, **slow)
    assert done.returncode == 0, done.stderr
    config = jobs.write_config(tmp_path / "cpu.json", jobs.config(data, device="cpu", **slow))
    done = jobs.run([ddprun_bin, "--nproc-per-node", 1, "--run-dir", tmp_path / "cpu", config])
    assert done.returncode == 0, done.stderr
    for (_, a), (_, b) in zip(jobs.losses(gpu), jobs.losses(tmp_path / "cpu"), strict=True):
        assert a == pytest.approx(b, rel=1e-4)


def test_two_ranks_share_one_gpu_through_gloo(ddprun_bin, data, tmp_path):
    done, run_dir = train(ddprun_bin, tmp_path / "shared", data, 2, environment={"DDPTRAIN_SHARE_GPU": "1"})
    assert done.returncode == 0, done.stderr
    jobs.assert_each_sample_once(run_dir, 2)


@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
def test_two_gpus_with_nccl_survive_a_killed_worker(ddprun_bin, data, tmp_path):
    done, run_dir = train(ddprun_bin, tmp_path / "two", data, 2, "kill rank=1 step=17", model={"type": "cnn"})
    assert done.returncode == 0, done.stderr
    jobs.assert_each_sample_once(run_dir, 2)


def test_more_workers_than_gpus_is_refused(ddprun_bin, data, tmp_path):
    done, _ = train(ddprun_bin, tmp_path / "many", data, GPUS + 1)
    assert done.returncode == 2
    assert str(GPUS + 1) in done.stderr and "GPU" in done.stderr


def test_out_of_memory_is_named(ddprun_bin, data, tmp_path):
    huge = {"model": {"type": "mlp", "hidden": [400000, 400000]}, "epochs": 1}  # 640 GB of weights
    done, run_dir = train(ddprun_bin, tmp_path / "huge", data, 1, **huge)
    assert done.returncode == 84, done.stderr
    assert jobs.report(run_dir)["rounds"][0]["first_cause"]["cause"] == "out of memory"
