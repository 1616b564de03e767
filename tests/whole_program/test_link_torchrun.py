"""Tests of `ddprun link-torchrun`. The command creates a link named torchrun, so that programs that call torchrun start
ddprun. The folder may already contain the torchrun of PyTorch."""

import os
import pathlib
import shutil
import tempfile

import jobs
import pytest

PYTORCHS = "#!/bin/sh\necho PyTorch\n"


@pytest.fixture
def folder(ddprun_bin, tmp_path) -> pathlib.Path:
    """Returns a folder with a copy of ddprun."""
    (tmp_path / "bin").mkdir()
    shutil.copy(ddprun_bin, tmp_path / "bin/ddprun")
    return tmp_path / "bin"


@pytest.fixture
def link(folder):
    """Returns a function that runs `link-torchrun` with the copy of ddprun. The folder of the copy is first on PATH."""
    def call(*words, path=folder, expect=0):
        done = jobs.run([folder / "ddprun", "link-torchrun", *words], cwd=folder.parent, PATH=f"{path}:{os.environ['PATH']}")
        assert done.returncode == expect, done
        return done.stdout + done.stderr
    return call


def put_pytorchs(folder: pathlib.Path):
    (folder / "torchrun").write_text(PYTORCHS)
    (folder / "torchrun").chmod(0o755)


def names(folder: pathlib.Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_the_link_is_next_to_ddprun_and_can_be_removed(folder, link, tmp_path):
    for _ in range(2):
        assert link() == f"{folder}/torchrun -> ddprun\n"
    (tmp_path / "report.py").write_text('print("a script")\n')
    done = jobs.run([folder / "torchrun", "--standalone", "report.py"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "a script\n"), done.stderr
    assert link("--remove") == f"{folder}/torchrun is removed\n"
    assert link("--remove") == f"{folder}/torchrun did not exist\n"
    assert names(folder) == ["ddprun"]


def test_an_existing_torchrun_is_replaced_only_with_force(folder, link):
    put_pytorchs(folder)
    assert link(expect=2).startswith(f"ddprun: {folder}/torchrun exists and is not a link to ddprun: choose a folder that comes earlier in PATH")
    assert link("--remove", expect=2) == f"ddprun: {folder}/torchrun was not removed, since it is not a link to ddprun\n"
    assert (folder / "torchrun").read_text() == PYTORCHS

    assert link("--force") == f"{folder}/torchrun -> ddprun, PyTorch's torchrun is kept as {folder}/torchrun.before-ddprun\n"
    assert link("--force") == f"{folder}/torchrun -> ddprun\n"  # the saved file is still PyTorch's, not the earlier link
    assert jobs.run([folder / "torchrun", "--help"]).stdout.startswith("Usage: torchrun")
    assert link("--remove") == f"{folder}/torchrun is restored\n"
    assert (folder / "torchrun").read_text() == PYTORCHS and names(folder) == ["ddprun", "torchrun"]


def test_in_another_folder(folder, link, tmp_path):
    """If a shell would still start a different torchrun, the output must name that program."""
    mine = tmp_path / "mine"
    assert link("mine", expect=2) == "ddprun: mine is not a folder\n"
    mine.mkdir()
    put_pytorchs(folder)
    assert link("mine") == (f"{mine}/torchrun -> {folder}/ddprun\nthe command torchrun still starts {folder}/torchrun, which comes first in PATH: "
                            f"put {mine} before its folder in PATH\n")
    assert link("mine", path=f"{mine}:{folder}") == f"{mine}/torchrun -> {folder}/ddprun\n"
    (folder / "ddprun").rename(tmp_path / "elsewhere")  # a link without a target also counts as a link to ddprun
    shutil.copy(tmp_path / "elsewhere", folder / "ddprun")
    assert link("mine", "--remove") == f"{mine}/torchrun is removed\n"


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere, and there is no setpriv")
def test_an_unwritable_folder(folder, tmp_path):
    for above in (tmp_path, *tmp_path.parents):
        if above == pathlib.Path(tempfile.gettempdir()):
            break
        above.chmod(0o755)
    (tmp_path / "locked").mkdir(mode=0o555)
    as_other = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    done = jobs.run([*as_other, folder / "ddprun", "link-torchrun", tmp_path / "locked"])
    assert (done.returncode, done.stderr) == (2, f"ddprun: cannot change {tmp_path}/locked/torchrun: Permission denied\n")


@pytest.mark.parametrize("words", [["--force", "--remove"], ["a", "b"], ["--no"]])
def test_unknown_arguments(link, words):
    assert "usage: ddprun link-torchrun [FOLDER] [--force | --remove]" in link(*words, expect=2)
