"""What ./dev package makes, installed as a user does: a wheel by pip, a tarball into a home folder, a Debian package. Programs start, agents
meet, and nothing stays when it goes. In CI, where DDPRUN_PACKAGE_TESTS says that ./dev test --package has made it, and with --long."""

import hashlib
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import venv

import jobs
import pytest
from node_agents import keep_records

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MADE = os.environ.get("DDPRUN_PACKAGE_TESTS") == "1"
SCRIPT = 'import os, sys\nprint("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "in", sys.prefix, flush=True)\n'

packaged = (lambda test: test) if MADE else pytest.mark.long


@pytest.fixture(scope="module")
def dist():
    """The folder with what was made for this processor."""
    if not MADE:
        for words in [], ["--trainer"]:
            made = subprocess.run([ROOT / "dev", "package", *words], capture_output=True, text=True, timeout=1800, check=False)
            assert made.returncode == 0, made.stdout + made.stderr
    return ROOT / "dist"


def newest(folder: pathlib.Path, pattern: str) -> pathlib.Path:
    return max(folder.glob(pattern), key=lambda file: file.stat().st_mtime)


@pytest.fixture(scope="module")
def environment(dist, tmp_path_factory):
    """A virtual environment that has the wheel and nothing else, and is not active."""
    folder = tmp_path_factory.mktemp("installed") / "environment"
    venv.create(folder, with_pip=True)
    wheel = newest(dist, "ddprun-*_x86_64.whl")
    subprocess.run([folder / "bin" / "python", "-m", "pip", "--quiet", "install", "--no-index", wheel], check=True, timeout=300)
    return folder


@pytest.fixture
def home(dist, tmp_path):
    """A home folder whose .local has the tarball's files and one of the user's own."""
    local = tmp_path / "home" / ".local"
    (local / "share").mkdir(parents=True)
    (local / "share" / "mine").write_text("the user's")
    subprocess.run(["tar", "-C", local, "-xf", newest(dist, "ddprun-[0-9]*-linux-x86_64.tar.gz")], check=True, timeout=60)
    return local


@packaged
def test_a_script_gets_the_python_of_the_environment(environment, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    done = jobs.run([environment / "bin" / "ddprun", "--nproc-per-node", 2, "train.py"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"rank {rank} of 2 in {environment}" for rank in range(2)]


@packaged
def test_a_torchrun_link_is_the_same_program(environment, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "mine").mkdir()
    for folder in [], [tmp_path / "mine"]:  # beside ddprun, and elsewhere
        subprocess.run([environment / "bin/ddprun", "link-torchrun", *folder], check=True, timeout=60)
        torchrun = (folder or [environment / "bin"])[0] / "torchrun"
        done = jobs.run([torchrun, "--nproc-per-node", 1, "train.py"], cwd=tmp_path)
        assert done.returncode == 0 and done.stdout == f"rank 0 of 1 in {environment}\n", done.stderr
        subprocess.run([environment / "bin/ddprun", "link-torchrun", *folder, "--remove"], check=True, timeout=60)
        assert not torchrun.is_symlink()


@packaged
def test_a_script_imports_the_helper(environment, home, tmp_path):
    """Of the wheel without a word; of the tarball with its folder on PYTHONPATH."""
    (tmp_path / "train.py").write_text("import ddprun\nddprun.step(3)\nprint(ddprun.__file__, ddprun.in_job(), flush=True)\n")
    done = jobs.run([environment / "bin" / "ddprun", "--nproc-per-node", 1, "train.py"], cwd=tmp_path)
    assert done.returncode == 0 and re.fullmatch(rf"{environment}/lib/python3[.0-9]*/site-packages/ddprun/__init__.py True\n", done.stdout), done
    done = jobs.run([home / "bin" / "ddprun", "--standalone", "train.py"], cwd=tmp_path, PYTHONPATH=str(home / "share/ddprun/python"),
                    PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0 and done.stdout == f"{home}/share/ddprun/python/ddprun/__init__.py True\n", done


@packaged
def test_agents_meet_with_the_openssl_that_is_inside(environment, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    port, token = jobs.free_port(), secrets.token_hex(32)
    agents = [subprocess.Popen([environment / "bin" / "ddprun", "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                                "--rdzv-conf", f"is_host={int(rank == 0)}", "train.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=jobs.clean_environment(DDPRUN_TOKEN=token, XDG_STATE_HOME=keep_records(tmp_path / f"state-{rank}")))
              for rank in range(2)]
    said = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    assert {f"rank {rank} of 2 in {environment}" for rank in range(2)} == {line for out, _ in said for line in out.splitlines()}


@packaged
def test_the_tarball_runs_from_a_home_folder_and_its_list_removes_it(home, tmp_path):
    (tmp_path / "job.sh").write_text('#!/bin/sh\necho "rank $RANK of $WORLD_SIZE"\n')
    (tmp_path / "job.sh").chmod(0o755)
    done = jobs.run([home / "bin/ddprun", "--standalone", "--nproc-per-node", 2, "./job.sh"], cwd=tmp_path)
    assert done.returncode == 0 and sorted(done.stdout.splitlines()) == ["rank 0 of 2", "rank 1 of 2"], done.stderr
    for name in ("LICENSE", "NOTICE", "README.md", "docs/command-line.md"):
        assert (home / "share/doc/ddprun" / name).stat().st_size > 0
    for name in ("man/man1/ddprun.1", "bash-completion/completions/ddprun", "zsh/site-functions/_ddprun", "fish/vendor_completions.d/ddprun.fish"):
        assert "max" in (home / "share" / name).read_text(), name
    subprocess.run(["sha256sum", "--quiet", "-c", "share/ddprun/SHA256SUMS"], cwd=home, check=True, timeout=60)
    subprocess.run([home / "bin/ddprun", "link-torchrun"], check=True, timeout=60)
    subprocess.run([home / "share/ddprun/uninstall.sh"], check=True, timeout=60)
    assert sorted(str(path.relative_to(home)) for path in home.rglob("*")) == ["share", "share/mine"]


@packaged
def test_the_trainers_tarball_trains_beside_the_launchers_and_goes_again(dist, home, ddprun_bin, tmp_path):
    launchers = sorted(home.rglob("*"))
    subprocess.run(["tar", "-C", home, "-xf", newest(dist, "ddprun-trainer-*-linux-x86_64.tar.gz")], check=True, timeout=60)
    for name in ("share/doc/ddprun-trainer/LICENSE", "share/doc/ddprun-trainer/NOTICE", "share/man/man1/ddptrain.1",
                 "share/bash-completion/completions/ddptrain", "share/zsh/site-functions/_ddptrain", "share/fish/vendor_completions.d/ddptrain.fish"):
        assert (home / name).stat().st_size > 0, name
    options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", jobs.run([ddprun_bin.parent / "ddptrain", "--help"]).stdout, flags=re.MULTILINE))
    assert len(options) > 5 and set(re.findall(r"^\\fB(\S+)\\fR", (home / "share/man/man1/ddptrain.1").read_text().replace("\\-", "-"), flags=re.MULTILINE)) == options
    subprocess.run(["sha256sum", "--quiet", "-c", "share/ddprun-trainer/SHA256SUMS"], cwd=home, check=True, timeout=60)

    (home / "lib/ddprun/torch").symlink_to((ddprun_bin.parent.parent / "lib/ddprun/torch").resolve())
    said = jobs.run([home / "bin/ddprun", "--version"]).stdout
    assert re.search(rf"^ddptrain: built with LibTorch \d+\.\d+\.\d+\S*, {home}/bin/ddptrain$", said, flags=re.MULTILINE), said
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=1, max_steps=2))
    done = jobs.run([home / "bin/ddprun", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config], cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    subprocess.run([home / "share/ddprun-trainer/uninstall.sh"], check=True, timeout=60)
    assert sorted(home.rglob("*")) == launchers


@packaged
def test_the_debian_package_has_the_same_program(dist, environment, tmp_path):
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is not installed")
    package = newest(dist, "ddprun_*_amd64.deb")
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True, timeout=60)
    assert (tmp_path / "usr/bin/ddprun").read_bytes() == (environment / "bin/ddprun").read_bytes()
    assert (tmp_path / "usr/share/doc/ddprun/copyright").stat().st_size > 10_000 and (tmp_path / "usr/share/man/man1/ddprun.1.gz").exists()
    done = jobs.run([tmp_path / "usr/bin/ddprun", "--standalone", "--no-python", "true"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@packaged
def test_the_sums_are_those_of_the_files(dist):
    lines = [line.split("  ") for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert {name.rpartition(".")[2] for _, name in lines} >= {"whl", "gz", "deb"}
    for digest, name in lines:
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest, name


# What the launcher may ask of a machine: glibc's own parts, at most as of 2018. hwloc is loaded only if it is there.
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "ld-linux-x86-64.so.2"}
NEWEST_GLIBC = (2, 28)


@packaged
def test_the_programs_need_nothing_but_glibc_2_28(environment):
    if not shutil.which("readelf"):
        pytest.skip("readelf is not installed")
    programs = [file for file in environment.rglob("*ddprun*") if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"]
    assert environment / "bin" / "ddprun" in programs
    for program in programs:
        said = subprocess.run(["readelf", "-dVW", program], capture_output=True, text=True, check=True, timeout=60).stdout
        libraries = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([0-9.]+)", said)}
        print(program.name, *sorted(libraries), "symbols up to GLIBC_" + ".".join(map(str, max(versions))))
        assert "Name: GLIBCXX" not in said and "Name: OPENSSL" not in said, program
        allowed = LIBRARIES | ({"libhwloc.so.15"} if program.suffix == ".so" else set())
        assert libraries <= allowed and max(versions) <= NEWEST_GLIBC, program


@packaged
def test_what_is_uninstalled_is_gone(environment):
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--quiet", "uninstall", "--yes", "ddprun"], check=True, timeout=300)
    assert [] == [file for file in environment.rglob("*") if "ddprun" in file.name]
