"""Tests of unmodified Python programs under torchrun and under ddprun: their results must be bit-identical."""

import importlib.util
import json
import os
import pathlib
import sys

import contract
import contract_launchers
import jobs
import pytest
import references

pytestmark = pytest.mark.needs_torch_python

PROGRAMS = pathlib.Path(__file__).resolve().parent / "reference" / "programs"
NOT_IN_GLOO = {"all_to_all", "all_reduce AVG"}  # operations in collectives.py that Gloo does not support with torch 2.11


def run(launcher, folder: pathlib.Path, program: str, *options: str, arguments: tuple[str, ...] = ()) -> dict[str, object]:
    """Runs the program with two workers. Returns the results of each rank."""
    folder.mkdir(exist_ok=True)
    for name in ("stdout", "stderr"):
        (folder / name).touch()
    results = folder / "results"
    results.mkdir(exist_ok=True)
    environment = jobs.clean_environment(TMPDIR=str(folder), HF_HOME=str(folder / "huggingface"), HF_HUB_OFFLINE="1",
                                         PATH=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    code = launcher.run({"arguments": ["--nproc-per-node", "2", *options, str(PROGRAMS / program), str(results), *arguments],
                         "environment": environment, "cwd": str(folder), "stdout": str(folder / "stdout"),
                         "stderr": str(folder / "stderr")}, 120)
    assert code == 0, "\n".join((folder / name).read_text(errors="replace") for name in ("stdout", "stderr"))
    return results_in(folder)


def results_in(folder: pathlib.Path) -> dict[str, object]:
    return {f"{rank}": json.loads((folder / f"results/rank-{rank}.json").read_text(encoding="utf-8")) for rank in range(2)}


def under_torchrun(torchrun, folder: pathlib.Path, program: str, *options: str, arguments: tuple[str, ...] = ()) -> dict[str, object]:
    place = folder / "torchrun"
    without_port = [option for option in options if not option.isdigit()]
    references.fill(place / "results", lambda: run(torchrun, place, program, *options, arguments=arguments), program, without_port, arguments)
    return results_in(place)


def under_both(torchrun, ddprun_bin, folder: pathlib.Path, program: str, *options: str, arguments: tuple[str, ...] = ()) -> dict:
    theirs = under_torchrun(torchrun, folder, program, *options, arguments=arguments)
    ours = run(contract_launchers.Ddprun(ddprun_bin), folder / "ddprun", program, *options, arguments=arguments)
    assert ours == theirs
    return ours


def needs(*modules: str):
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {' and '.join(missing)} (requirements/python-programs.txt)")


@pytest.mark.parametrize("method", [(), ("by-address",)], ids=["env://", "tcp://"])
@pytest.mark.parametrize("options", [("--standalone",), ("--master-addr", "localhost", "--master-port", "PORT")],
                         ids=["standalone", "static"])
def test_every_collective(torchrun, ddprun_bin, tmp_path, options, method):
    port = str(contract.free_port())
    results = under_both(torchrun, ddprun_bin, tmp_path, "collectives.py", *[port if o == "PORT" else o for o in options], arguments=method)
    for rank in ("0", "1"):
        assert results[rank]["elastic"] is True
        found = results[rank]["collectives"]
        assert {name for name, value in found.items() if str(value).endswith("Error")} <= NOT_IN_GLOO
        assert found["all_reduce SUM"] == [12, 14, 16, 18]
        assert found["all_gather_object"] == [{"rank": 0}, {"rank": 1}]


def test_distributed_data_parallel_and_checkpoints(torchrun, ddprun_bin, tmp_path):
    results = under_both(torchrun, ddprun_bin, tmp_path, "ddp_and_checkpoint.py", "--standalone")
    assert results["0"]["after loading"] == results["0"]["after"]
    assert results["0"]["before"] != results["1"]["before"]
    assert results["0"]["weights"] == results["1"]["weights"]


def test_a_restart_continues_from_the_scripts_own_snapshot(torchrun, ddprun_bin, tmp_path):
    undisturbed = under_torchrun(torchrun, tmp_path, "snapshot.py", "--standalone")
    ddprun = contract_launchers.Ddprun(ddprun_bin)
    disturbed = run(ddprun, tmp_path / "ddprun", "snapshot.py", "--standalone", "--max-restarts", "3", arguments=("--fail", "2:0,4:1"))
    for rank in range(2):
        file = tmp_path / "ddprun" / "results" / f"attempts-{rank}.jsonl"
        attempts = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        assert attempts == [{"restart": restart, "max": "3", "first": first} for restart, first in enumerate((0, 2, 4))]
        assert disturbed[f"{rank}"]["weights"] == undisturbed[f"{rank}"]["weights"]
        assert disturbed[f"{rank}"]["losses"] == undisturbed[f"{rank}"]["losses"][4:]


@needs("accelerate")
def test_accelerate(torchrun, ddprun_bin, tmp_path):
    results = under_both(torchrun, ddprun_bin, tmp_path, "with_accelerate.py", "--standalone")
    assert [results[rank]["process"] for rank in "01"] == [0, 1]
    assert results["0"]["processes"] == 2
    assert "MULTI_CPU" in results["0"]["type"]


@needs("transformers", "accelerate")
def test_trainer_of_transformers(torchrun, ddprun_bin, tmp_path):
    results = under_both(torchrun, ddprun_bin, tmp_path, "with_transformers.py", "--standalone")
    assert results["0"]["processes"] == 2
    assert [entry["step"] for entry in results["0"]["log"] if "loss" in entry] == [1, 2, 3, 4, 5, 6]
    assert results["0"]["weights"] == results["1"]["weights"]


@needs("lightning")
def test_lightning_finds_its_launcher(torchrun, ddprun_bin, tmp_path):
    results = under_both(torchrun, ddprun_bin, tmp_path, "with_lightning.py", "--standalone")
    assert results["0"]["environment"] == "TorchElasticEnvironment"
    assert [(results[rank]["rank"], results[rank]["processes"]) for rank in "01"] == [(0, 2), (1, 2)]
    assert len(results["0"]["losses"]) == 8
