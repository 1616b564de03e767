"""A worker program in a user's own project, outside of the sources: built against the files that `cmake --install` has installed, after they were
moved elsewhere."""

import os
import pathlib
import random
import shutil
import signal
import subprocess

import jobs
import pytest
from test_install import build, cmake, install  # noqa: F401  (build is a fixture)
from test_own_loop import Running, newest
from test_own_worker import points  # noqa: F401


@pytest.fixture
def installed(build, tmp_path) -> pathlib.Path:  # noqa: F811
    """The installed files, moved away from their prefix: none of them may depend on that path."""
    if not (build / "sdk/libddprun_worker.a").exists() or not shutil.which("c++"):
        pytest.skip("needs a build with the trainer, and a compiler")
    (tmp_path / "first").mkdir()
    install(build, tmp_path / "first" / "prefix")
    shutil.move(tmp_path / "first" / "prefix", tmp_path / "prefix")
    return tmp_path / "prefix"


def test_a_project_of_ones_own_has_all_of_ddptrain(installed, points, tmp_path):  # noqa: F811
    project = tmp_path / "project"
    shutil.copytree(installed / "share/ddprun/example", project)
    shutil.move(points, project / "points")
    cmake("-S", project, "-B", project / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    cmake("--build", project / "build", "--target", "mytrain")
    for run, fault in (("calm", ""), ("killed", "kill rank=1 step=77")):
        done = jobs.run([installed / "bin/ddprun", "--nproc-per-node", 2, "--run-dir", tmp_path / run, "train.json"],
                        cwd=project, DDPTRAIN_FAULT=fault)
        assert done.returncode == 0 and "done: test mean_error 0.0" in done.stdout, done.stdout + done.stderr
    assert len(jobs.report(tmp_path / "killed")["rounds"]) == 2
    assert jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "calm")
    done = subprocess.run([project / "build/mytrain", "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("ddptrain "), done.stdout + done.stderr


@pytest.mark.long
def test_a_loop_of_ones_own_loses_no_step_with_a_worker(installed, tmp_path):
    example = installed / "share/ddprun/example"
    assert len((example / "loop.cpp").read_text(encoding="utf-8").splitlines()) <= 60
    cmake("-S", example, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    cmake("--build", tmp_path / "build", "--target", "myloop")
    seed = random.randrange(2**32)
    rank, step = random.Random(seed).randrange(2), random.Random(seed).randrange(1, 200)
    print(f"seed {seed}: rank {rank} is killed after step {step}")
    for run in ("calm", "killed"):
        with Running(installed / "bin/ddprun", tmp_path / "build/myloop", tmp_path / run, steps=400) as job:
            if run == "killed":
                job.until_step(step)
                os.kill(job.pids[rank], signal.SIGKILL)
            assert job.end() == 0, job.errors
    (regrouped,) = job.of("regrouped")
    assert regrouped["kept"] == [1 - rank] and regrouped["step"] >= step, regrouped
    assert newest(tmp_path / "killed") == newest(tmp_path / "calm")


def test_a_new_project_builds_and_trains(installed, tmp_path):
    done = jobs.run([installed / "bin/ddprun", "init", "cpp", "my-project"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("made my-project with CMakeLists.txt, README.md, task.cpp, train.json\n"), done.stdout
    assert f"-DCMAKE_PREFIX_PATH={installed} " in done.stdout, done.stdout
    project = tmp_path / "my-project"
    assert sorted(file.name for file in project.iterdir()) == ["CMakeLists.txt", "README.md", "task.cpp", "train.json"]
    cmake("-S", project, "-B", project / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    cmake("--build", project / "build")
    done = jobs.run([installed / "bin/ddprun", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", project / "train.json", "task.points=800"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = jobs.metrics(tmp_path / "run", "eval")
    assert last["loss"] < 0.02 < first["loss"], (first, last)
    refused = jobs.run([installed / "bin/ddprun", "init", "cpp", project])
    assert refused.returncode == 2 and refused.stderr == f"ddprun: init: {project} has files in it; name a new folder or an empty one\n"


def test_another_libtorch_is_refused_with_both_versions(installed, tmp_path):
    other = tmp_path / "torch"
    headers = other / "include/torch/csrc/api/include/torch"
    headers.mkdir(parents=True)
    (headers / "all.h").touch()
    (headers / "version.h").write_text("#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 9\n#define TORCH_VERSION_PATCH 1\n")
    done = subprocess.run(["cmake", "-S", installed / "share/ddprun/example", "-B", tmp_path / "build", "-G", "Ninja",
                           f"-DCMAKE_PREFIX_PATH={installed}", f"-DLIBTORCH={other}"], capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ))
    assert done.returncode != 0
    text = " ".join(done.stderr.split())
    assert "expected LibTorch 2.1" in text and f"in {other}, found 2.9.1; -DLIBTORCH=DIR names it" in text, done.stderr


def test_a_program_in_c_needs_no_libtorch(installed, tmp_path):
    (installed / "lib/ddprun/torch").unlink()
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(loop LANGUAGES C)\nfind_package(ddprun COMPONENTS channel REQUIRED)\n"
                                             f"add_executable(loop {pathlib.Path(__file__).with_name('channel_worker.c')})\ntarget_link_libraries(loop PRIVATE ddprun::channel)\n",
                                             encoding="utf-8")
    cmake("-S", tmp_path, "-B", tmp_path / "build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    cmake("--build", tmp_path / "build")
    done = jobs.run([installed / "bin/ddprun", "--standalone", "--log-dir", tmp_path / "logs", "--no-python", tmp_path / "build/loop", "progress"])
    assert done.returncode == 0 and "step 1,000/1,000" in done.stderr, done.stdout + done.stderr
