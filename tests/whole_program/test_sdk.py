"""Tests of worker programs that are built in a user's project, outside of the source tree. The projects use the files of `cmake
--install`, which were moved to another folder after the installation."""

import os
import pathlib
import random
import shutil
import signal
import subprocess

import jobs
import pytest
from test_install import build, cmake, install  # noqa: F401  (build is a fixture)
from test_custom_loop import Running, newest
from test_custom_worker import points  # noqa: F401


@pytest.fixture
def installed(build, tmp_path) -> pathlib.Path:  # noqa: F811
    """Returns the installed files, moved from the install prefix to another folder. No file may depend on the path of the
    prefix."""
    if not (build / "sdk/libddprun_worker.a").exists() or not shutil.which("c++"):
        pytest.skip("needs a build with the trainer, and a compiler")
    (tmp_path / "first").mkdir()
    install(build, tmp_path / "first" / "prefix")
    shutil.move(tmp_path / "first" / "prefix", tmp_path / "prefix")
    return tmp_path / "prefix"


def build_project(source: pathlib.Path, folder: pathlib.Path, installed: pathlib.Path, *target: str) -> None:
    """Builds the project in `folder` with the installed files. With ccache, files that are unchanged since an earlier test run
    are not compiled again, even though each test run has different folder names."""
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    cmake("-S", source, "-B", folder, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}", *launcher)
    cmake("--build", folder, *(["--target", *target] if target else []), CCACHE_BASEDIR=str(installed.parent), CCACHE_NOHASHDIR="1")


def test_a_custom_project_has_all_features(installed, points, tmp_path):  # noqa: F811
    project = tmp_path / "project"
    shutil.copytree(installed / "share/ddprun/example", project)
    shutil.move(points, project / "points")
    build_project(project, project / "build", installed, "mytrain")
    for run, fault in (("calm", ""), ("killed", "kill rank=1 step=77")):
        done = jobs.run([installed / "bin/ddprun", "--nproc-per-node", 2, "--run-dir", tmp_path / run, "train.json"],
                        cwd=project, DDPTRAIN_FAULT=fault)
        assert done.returncode == 0 and "done: test mean_error 0.0" in done.stdout, done.stdout + done.stderr
    assert len(jobs.report(tmp_path / "killed")["rounds"]) == 2
    assert jobs.weights_digest(tmp_path / "killed") == jobs.weights_digest(tmp_path / "calm")
    done = subprocess.run([project / "build/mytrain", "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and done.stdout.startswith("ddptrain "), done.stdout + done.stderr


@pytest.mark.long
def test_a_custom_loop_loses_no_step_with_a_worker(installed, tmp_path):
    example = installed / "share/ddprun/example"
    assert len((example / "loop.cpp").read_text(encoding="utf-8").splitlines()) <= 60
    build_project(example, tmp_path / "build", installed, "myloop")
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
    assert done.stdout.startswith("created my-project with CMakeLists.txt, README.md, task.cpp, train.json\n"), done.stdout
    assert f"-DCMAKE_PREFIX_PATH={installed} " in done.stdout, done.stdout
    project = tmp_path / "my-project"
    assert sorted(file.name for file in project.iterdir()) == ["CMakeLists.txt", "README.md", "task.cpp", "train.json"]
    build_project(project, project / "build", installed)
    done = jobs.run([installed / "bin/ddprun", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", project / "train.json", "task.points=800"], cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first, *_, last = jobs.metrics(tmp_path / "run", "eval")
    assert last["loss"] < 0.02 < first["loss"], (first, last)
    refused = jobs.run([installed / "bin/ddprun", "init", "cpp", project])
    assert refused.returncode == 2 and refused.stderr == f"ddprun: init: {project} is not empty; expected a new or an empty folder\n"


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
    assert "expected LibTorch 2.1" in text and f"in {other}, found 2.9.1; set the folder of LibTorch 2.1" in text and "with -DLIBTORCH=DIR" in text, done.stderr


def test_a_program_in_c_needs_no_libtorch(installed, tmp_path):
    (installed / "lib/ddprun/torch").unlink()
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.22)\nproject(loop LANGUAGES C)\nfind_package(ddprun COMPONENTS channel REQUIRED)\n"
                                             f"add_executable(loop {pathlib.Path(__file__).with_name('channel_worker.c')})\ntarget_link_libraries(loop PRIVATE ddprun::channel)\n",
                                             encoding="utf-8")
    build_project(tmp_path, tmp_path / "build", installed)
    done = jobs.run([installed / "bin/ddprun", "--standalone", "--log-dir", tmp_path / "logs", "--no-python", tmp_path / "build/loop", "progress"])
    assert done.returncode == 0 and "step 1,000/1,000" in done.stderr, done.stdout + done.stderr
