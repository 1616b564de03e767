"""The wheel that ./dev package makes: installed by pip as a user does, it starts scripts and joins agents; nothing stays when it goes."""

import pathlib
import subprocess
import venv

import jobs
import pytest
from node_agents import keep_records

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = 'import os, sys\nprint("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "in", sys.prefix, flush=True)\n'


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """A virtual environment that has the wheel and nothing else, and is not active."""
    made = subprocess.run([ROOT / "dev", "package"], capture_output=True, text=True, timeout=1800, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    wheels = sorted((ROOT / "dist").glob("*_x86_64.whl"), key=lambda file: file.stat().st_mtime)
    folder = tmp_path_factory.mktemp("installed") / "environment"
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "python", "-m", "pip", "--quiet", "install", "--no-index", wheels[-1]], check=True, timeout=300)
    return folder


@pytest.mark.long
def test_a_script_gets_the_python_of_the_environment(environment, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = jobs.run([environment / "bin" / "ddprun", "--nproc-per-node", 2, "train.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 2 in {environment}" for rank in range(2)]


@pytest.mark.long
def test_a_torchrun_link_is_the_same_program(environment, tmp_path):
    (tmp_path / "torchrun").symlink_to(environment / "bin" / "ddprun")
    (tmp_path / "train.py").write_text(SCRIPT)
    done = jobs.run([tmp_path / "torchrun", "--nproc-per-node", 1, "train.py"], cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == f"rank 0 of 1 in {environment}\n", done.stderr


@pytest.mark.long
def test_agents_meet_with_the_openssl_that_is_inside(environment, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    port = jobs.free_port()
    agents = [subprocess.Popen([environment / "bin" / "ddprun", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                                "--rdzv-conf", f"is_host={int(rank == 0)}", "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=jobs.clean_environment(DDPRUN_TOKEN="a3f1" * 16, XDG_STATE_HOME=keep_records(tmp_path / f"state-{rank}")))
              for rank in range(2)]
    said = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert {f"rank {rank} of 2 in {environment}" for rank in range(2)} == {line for out, _ in said for line in out.splitlines()}


@pytest.mark.long
def test_what_is_uninstalled_is_gone(environment):
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--quiet", "uninstall", "--yes", "ddprun"], check=True, timeout=300)
    assert [] == [file for file in environment.rglob("*") if "ddprun" in file.name]
