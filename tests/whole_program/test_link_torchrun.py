"""ddprun link-torchrun: the link that scripts which call torchrun find, with and without a torchrun that pip has installed at the same place."""

import os
import pathlib
import shutil
import tempfile

import jobs
import pytest

PYTORCHS = "#!/bin/sh\necho PyTorch\n"


@pytest.fixture
def folder(ddprun_bin, tmp_path) -> pathlib.Path:
    """A folder of programs with its own ddprun."""
    (tmp_path / "bin").mkdir()
    shutil.copy(ddprun_bin, tmp_path / "bin/ddprun")
    return tmp_path / "bin"


@pytest.fixture
def link(folder):
    """Calls the subcommand of that ddprun, with the folder first on PATH."""
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


def test_it_lies_beside_ddprun_and_goes_again(folder, link, tmp_path):
    for _ in range(2):
        assert link() == f"{folder}/torchrun -> ddprun\n"
    (tmp_path / "report.py").write_text('print("a script")\n')
    done = jobs.run([folder / "torchrun", "--standalone", "report.py"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "a script\n"), done.stderr
    assert link("--remove") == f"{folder}/torchrun is gone\n"
    assert link("--remove") == f"{folder}/torchrun was not there\n"
    assert names(folder) == ["ddprun"]


def test_pytorchs_own_stays_unless_it_is_asked_for(folder, link):
    put_pytorchs(folder)
    assert link(expect=2).startswith(f"ddprun: {folder}/torchrun is there and is not a link to ddprun: name another folder")
    assert link("--remove", expect=2) == f"ddprun: {folder}/torchrun is not a link to ddprun: it stays\n"
    assert (folder / "torchrun").read_text() == PYTORCHS

    assert link("--force") == f"{folder}/torchrun -> ddprun, PyTorch's is kept as {folder}/torchrun.before-ddprun\n"
    assert link("--force") == f"{folder}/torchrun -> ddprun\n"  # the saved file is still PyTorch's, not the earlier link
    assert jobs.run([folder / "torchrun", "--help"]).stdout.startswith("Usage: torchrun")
    assert link("--remove") == f"{folder}/torchrun is again what it was\n"
    assert (folder / "torchrun").read_text() == PYTORCHS and names(folder) == ["ddprun", "torchrun"]


def test_in_another_folder(folder, link, tmp_path):
    """It reports which program a shell would start instead."""
    mine = tmp_path / "mine"
    assert link("mine", expect=2) == "ddprun: mine is not a folder\n"
    mine.mkdir()
    put_pytorchs(folder)
    assert link("mine") == (f"{mine}/torchrun -> {folder}/ddprun\nPATH has {folder}/torchrun before it, which a shell starts: "
                            f"put {mine} before that\n")
    assert link("mine", path=f"{mine}:{folder}") == f"{mine}/torchrun -> {folder}/ddprun\n"
    (folder / "ddprun").rename(tmp_path / "elsewhere")  # a dangling link counts as one of ours as well
    shutil.copy(tmp_path / "elsewhere", folder / "ddprun")
    assert link("mine", "--remove") == f"{mine}/torchrun is gone\n"


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root may write everywhere, and there is no setpriv")
def test_a_folder_that_may_not_be_written(folder, tmp_path):
    for above in (tmp_path, *tmp_path.parents):
        if above == pathlib.Path(tempfile.gettempdir()):
            break
        above.chmod(0o755)
    (tmp_path / "locked").mkdir(mode=0o555)
    as_other = ["setpriv", "--reuid=65534", "--clear-groups"] if os.geteuid() == 0 else []
    done = jobs.run([*as_other, folder / "ddprun", "link-torchrun", tmp_path / "locked"])
    assert (done.returncode, done.stderr) == (2, f"ddprun: cannot change {tmp_path}/locked/torchrun: Permission denied\n")


@pytest.mark.parametrize("words", [["--force", "--remove"], ["a", "b"], ["--no"]])
def test_what_it_does_not_know(link, words):
    assert "usage: ddprun link-torchrun [FOLDER] [--force | --remove]" in link(*words, expect=2)
