"""Tests of the packages that ./dev package builds. Each package is installed in the same way as by a user: the wheel with pip,
the tarball in a home folder, and the Debian package. The tests check that the programs start, that agents connect, and that
removal leaves no files. The tests run with --long. They also run in CI, where DDPRUN_PACKAGE_TESTS=1 means that ./dev test
--package has already built the packages."""

import hashlib
import os
import pathlib
import re
import secrets
import shutil
import subprocess
import sys
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
    """Builds the packages for this processor, if CI has not done so, and returns their folder."""
    if not MADE:
        for words in [], ["--trainer"]:
            made = subprocess.run([ROOT / "dev", "package", *words], capture_output=True, text=True, timeout=1800, check=False)
            assert made.returncode == 0, made.stdout + made.stderr
    return ROOT / "dist"


def newest(folder: pathlib.Path, pattern: str) -> pathlib.Path:
    """Returns the newest file that matches the pattern. Packages for another torch version have a + in their version and are
    ignored."""
    return max((file for file in folder.glob(pattern) if "+" not in file.name), key=lambda file: file.stat().st_mtime)


@pytest.fixture(scope="module")
def environment(dist, tmp_path_factory):
    """Returns a virtual environment that contains only the wheel. Tests do not activate it."""
    folder = tmp_path_factory.mktemp("installed") / "environment"
    venv.create(folder, with_pip=True)
    wheel = newest(dist, "ddprun-*_x86_64.whl")
    subprocess.run([folder / "bin" / "python", "-m", "pip", "--quiet", "install", "--no-index", wheel], check=True, timeout=300)
    return folder


@pytest.fixture
def home(dist, tmp_path):
    """Returns a home folder whose .local contains the files of the tarball and one file of the user."""
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
    for folder in [], [tmp_path / "mine"]:  # the link is made next to ddprun, and then in another folder
        subprocess.run([environment / "bin/ddprun", "link-torchrun", *folder], check=True, timeout=60)
        torchrun = (folder or [environment / "bin"])[0] / "torchrun"
        done = jobs.run([torchrun, "--nproc-per-node", 1, "train.py"], cwd=tmp_path)
        assert done.returncode == 0 and done.stdout == f"rank 0 of 1 in {environment}\n", done.stderr
        subprocess.run([environment / "bin/ddprun", "link-torchrun", *folder, "--remove"], check=True, timeout=60)
        assert not torchrun.is_symlink()


@packaged
def test_a_script_imports_the_helper(environment, home, tmp_path):
    """Python must find the package ddprun of the wheel without configuration. For the tarball, PYTHONPATH must contain the
    folder of the package."""
    (tmp_path / "train.py").write_text("import ddprun\nddprun.step(3)\nprint(ddprun.__file__, ddprun.in_job(), flush=True)\n")
    done = jobs.run([environment / "bin" / "ddprun", "--nproc-per-node", 1, "train.py"], cwd=tmp_path)
    assert done.returncode == 0 and re.fullmatch(rf"{environment}/lib/python3[.0-9]*/site-packages/ddprun/__init__.py True\n", done.stdout), done
    done = jobs.run([home / "bin" / "ddprun", "--standalone", "train.py"], cwd=tmp_path, PYTHONPATH=str(home / "share/ddprun/python"),
                    PYTHONDONTWRITEBYTECODE="1")
    assert done.returncode == 0 and done.stdout == f"{home}/share/ddprun/python/ddprun/__init__.py True\n", done


def meet(ddprun: list, folder: pathlib.Path, job: str) -> list[str]:
    """Runs a job of two agents with one worker each. Returns the lines that the workers printed."""
    port, token = jobs.free_port(), secrets.token_hex(32)
    agents = [subprocess.Popen([*map(str, ddprun), "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                                "--rdzv-conf", f"is_host={int(rank == 0)}", job], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env=jobs.clean_environment(DDPRUN_TOKEN=token, XDG_STATE_HOME=keep_records(folder / f"state-{rank}")))
              for rank in range(2)]
    output = [agent.communicate(timeout=120) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], output
    return [line for out, _ in output for line in out.splitlines()]


@packaged
def test_agents_connect_with_the_bundled_openssl(environment, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    assert {f"rank {rank} of 2 in {environment}" for rank in range(2)} == set(meet([environment / "bin" / "ddprun"], tmp_path, "train.py"))


@packaged
def test_the_tarball_runs_and_can_be_removed_by_its_list(home, tmp_path):
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
def test_the_trainer_tarball_installs_trains_and_is_removed(dist, home, ddprun_bin, tmp_path):
    launchers = sorted(home.rglob("*"))
    subprocess.run(["tar", "-C", home, "-xf", newest(dist, "ddprun-trainer-*-linux-x86_64.tar.gz")], check=True, timeout=60)
    for name in ("share/doc/ddprun-trainer/LICENSE", "share/doc/ddprun-trainer/NOTICE", "share/man/man1/ddptrain.1",
                 "share/bash-completion/completions/ddptrain", "share/zsh/site-functions/_ddptrain", "share/fish/vendor_completions.d/ddptrain.fish"):
        assert (home / name).stat().st_size > 0, name
    options = set(re.findall(r"^  (?:-\w,)?(--[\w-]+)", jobs.run([ddprun_bin.parent / "ddptrain", "--help"]).stdout, flags=re.MULTILINE))
    assert len(options) > 5 and set(re.findall(r"^\\fB(\S+)\\fR", (home / "share/man/man1/ddptrain.1").read_text().replace("\\-", "-"), flags=re.MULTILINE)) == options
    subprocess.run(["sha256sum", "--quiet", "-c", "share/ddprun-trainer/SHA256SUMS"], cwd=home, check=True, timeout=60)

    (home / "lib/ddprun/torch").symlink_to((ddprun_bin.parent.parent / "lib/ddprun/torch").resolve())
    output = jobs.run([home / "bin/ddprun", "--version"]).stdout
    assert re.search(rf"^ddptrain: built with LibTorch \d+\.\d+\.\d+\S*, {home}/bin/ddptrain$", output, flags=re.MULTILINE), output
    config = jobs.write_config(tmp_path / "train.json", jobs.config(jobs.write_small_dataset(tmp_path / "data"), epochs=1, max_steps=2))
    done = jobs.run([home / "bin/ddprun", "--nproc-per-node", 2, "--run-dir", tmp_path / "run", config], cwd=tmp_path)
    assert done.returncode == 0, done.stderr

    subprocess.run([home / "share/ddprun-trainer/uninstall.sh"], check=True, timeout=60)
    assert sorted(home.rglob("*")) == launchers


def block_with(text: str) -> str:
    """Returns the block of shell commands in docs/install.md that contains the text."""
    [found] = [block for block in re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs/install.md").read_text(), re.M | re.S) if text in block]
    return found


def run_block(text: str, dist: pathlib.Path, home: pathlib.Path, *programs: pathlib.Path) -> str:
    """Runs a block of commands of docs/install.md in the folder with the packages, and returns its output. The test runs the
    commands exactly as they are on the page."""
    path = ":".join(map(str, [home / ".local/bin", *programs, "/usr/bin", "/bin"]))
    done = jobs.run(["bash", "-euo", "pipefail", "-c", block_with(text)], cwd=dist, HOME=str(home), PATH=path)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@packaged
def test_the_documented_commands_work(dist, tmp_path):
    (tmp_path / "dist").mkdir()
    for file in dist.iterdir():
        (tmp_path / "dist" / file.name).symlink_to(file)
    (tmp_path / "dist" / "train.py").write_text(SCRIPT)
    venv.create(tmp_path / "environment", with_pip=True)
    output = run_block("train.py", tmp_path / "dist", tmp_path, tmp_path / "environment/bin")
    assert sorted(output.splitlines())[-2:] == [f"rank {rank} of 2 in {tmp_path}/environment" for rank in range(2)], output
    assert run_block("ddprun-0.1.0-linux", tmp_path / "dist", tmp_path).startswith("ddprun 0.1.0 ")


@packaged
@pytest.mark.needs_torch_python
def test_the_documented_trainer_commands_work(dist, tmp_path):
    run_block("ddprun-0.1.0-linux", dist, tmp_path)
    assert run_block("ddprun-trainer-0.1.0-linux", dist, tmp_path, pathlib.Path(sys.executable).parent).startswith("ddptrain ")


@packaged
def test_the_debian_package_has_the_same_program(dist, environment, tmp_path):
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is not installed")
    package = newest(dist, "ddprun_*_amd64.deb")
    subprocess.run(["dpkg-deb", "-x", package, tmp_path], check=True, timeout=60)
    fields = [subprocess.run(["dpkg-deb", "-f", package, field], check=True, capture_output=True, text=True, timeout=60).stdout.strip()
             for field in ("Depends", "Recommends")]
    assert fields == ["libc6 (>= 2.28)", ""]  # apt installs recommended packages, and keeps them when this package is removed
    assert (tmp_path / "usr/bin/ddprun").read_bytes() == (environment / "bin/ddprun").read_bytes()
    assert (tmp_path / "usr/share/doc/ddprun/copyright").stat().st_size > 10_000 and (tmp_path / "usr/share/man/man1/ddprun.1.gz").exists()
    done = jobs.run([tmp_path / "usr/bin/ddprun", "--standalone", "--no-python", "true"], cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@packaged
def test_checksums_match_the_files(dist):
    lines = [line.split("  ") for line in (dist / "SHA256SUMS").read_text().splitlines()]
    assert {name.rpartition(".")[2] for _, name in lines} >= {"whl", "gz", "deb"}
    for digest, name in lines:
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == digest, name


# The libraries that the launcher may need. All these libraries belong to glibc. The launcher may use symbols up to glibc 2.28
# (2018), and loads hwloc only if hwloc is installed.
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1"}
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
NEWEST_GLIBC = (2, 28)


def check_required_libraries(folder: pathlib.Path, processor: str):
    """Checks the required libraries and symbol versions of all programs and modules of the launcher in the folder, and prints
    them."""
    if not shutil.which("readelf"):
        pytest.skip("readelf is not installed")
    programs = [file for file in folder.rglob("*ddprun*") if file.is_file() and file.read_bytes()[:4] == b"\x7fELF"]
    assert {file.name for file in programs} == {"ddprun", "libddprun_tls.so", "libddprun_topology.so"}
    for program in programs:
        output = subprocess.run(["readelf", "-hdVW", program], capture_output=True, text=True, check=True, timeout=60).stdout
        libraries = set(re.findall(r"\(NEEDED\).*\[(.*)\]", output))
        versions = {tuple(map(int, version.split("."))) for version in re.findall(r"Name: GLIBC_([0-9.]+)", output)}
        print(program.name, *sorted(libraries), "symbols up to GLIBC_" + ".".join(map(str, max(versions))))
        assert re.search(r"Machine: +(.*)", output)[1].lower().endswith(processor.replace("_", "-")), program
        assert "Name: GLIBCXX" not in output and "Name: OPENSSL" not in output, program
        allowed = LIBRARIES | {LOADERS[processor]} | ({"libhwloc.so.15"} if program.name == "libddprun_topology.so" else set())
        assert libraries <= allowed and max(versions) <= NEWEST_GLIBC, program


@packaged
def test_the_programs_need_nothing_but_glibc_2_28(environment):
    check_required_libraries(environment, "x86_64")


@pytest.fixture(scope="module")
def home_on_aarch64(dist, tmp_path_factory):
    """Returns a folder with the files of the tarball for aarch64. If CI has not built the tarball, the test builds it, which
    takes minutes and is done only with --long."""
    if not MADE:
        made = subprocess.run([ROOT / "dev", "package", "--target", "aarch64"], capture_output=True, text=True, timeout=1800, check=False)
        assert made.returncode == 0, made.stdout + made.stderr
    if not list(dist.glob("ddprun-*-linux-aarch64.tar.gz")):
        pytest.skip("./dev package --target aarch64 has not been run: dist/ has no package for aarch64")
    folder = tmp_path_factory.mktemp("aarch64")
    subprocess.run(["tar", "-C", folder, "-xf", newest(dist, "ddprun-[0-9]*-linux-aarch64.tar.gz")], check=True, timeout=60)
    return folder


@packaged
def test_aarch64_programs_need_nothing_but_glibc_2_28(home_on_aarch64):
    check_required_libraries(home_on_aarch64, "aarch64")


@pytest.fixture
def on_aarch64(home_on_aarch64):
    """Returns the command that runs ddprun for aarch64 on this machine. It needs Debian's qemu-user and the libraries of
    libc6-arm64-cross."""
    qemu = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    libraries = pathlib.Path(os.environ.get("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu"))
    if not qemu or not (libraries / "lib/ld-linux-aarch64.so.1").exists():
        pytest.skip("Debian's qemu-user or libc6-arm64-cross is not installed: the programs for aarch64 cannot be started")
    return [qemu, "-L", libraries, home_on_aarch64 / "bin/ddprun"]


@pytest.fixture
def jobs_on_aarch64(on_aarch64):
    """Returns the same command as on_aarch64. Skips the test if qemu-user does not support a system call that jobs need."""
    output = jobs.run([*on_aarch64, "--standalone", "--no-python", "true"]).stderr
    if "prctl(PR_SET_CHILD_SUBREAPER) failed: Invalid argument" in output:
        pytest.skip("this qemu-user does not support PR_SET_CHILD_SUBREAPER (7.2 does not, 10.0 does): no job can be started for aarch64")
    return on_aarch64


@packaged
def test_aarch64_prints_version_and_help(on_aarch64, environment):
    for words in ["--version"], ["--help"], ["--help-all"], ["--print-man"]:
        here, there = jobs.run([environment / "bin/ddprun", *words], PATH="/usr/bin:/bin"), jobs.run([*on_aarch64, *words], PATH="/usr/bin:/bin")
        assert there.returncode == 0 and len(there.stdout) > 50, there
        assert words == ["--version"] or there.stdout == here.stdout
        print(there.stdout.splitlines()[0])


@packaged
def test_on_aarch64_two_workers_run_and_are_restarted(jobs_on_aarch64, tmp_path):
    """The worker of rank 1 fails once. Then both workers are restarted."""
    (tmp_path / "job.sh").write_text('#!/bin/sh\n[ "$RANK$TORCHELASTIC_RESTART_COUNT" != 10 ] || exit 7\necho "rank $RANK of $WORLD_SIZE"\n')
    (tmp_path / "job.sh").chmod(0o755)
    done = jobs.run([*jobs_on_aarch64, "--standalone", "--nproc-per-node", 2, "--max-restarts", 1, "./job.sh"], cwd=tmp_path)
    assert done.returncode == 0 and set(done.stdout.splitlines()) == {"rank 0 of 2", "rank 1 of 2"}, done
    assert "rank 1" in done.stderr and "exit code 7" in done.stderr, done.stderr


@packaged
def test_aarch64_agents_connect(jobs_on_aarch64, tmp_path):
    (tmp_path / "job.sh").write_text('#!/bin/sh\necho "rank $RANK of $WORLD_SIZE"\n')
    (tmp_path / "job.sh").chmod(0o755)
    assert set(meet(jobs_on_aarch64, tmp_path, "./job.sh")) == {"rank 0 of 2", "rank 1 of 2"}


@packaged
def test_an_uninstalled_package_leaves_nothing(environment):
    subprocess.run([environment / "bin" / "python", "-m", "pip", "--quiet", "uninstall", "--yes", "ddprun"], check=True, timeout=300)
    assert [] == [file for file in environment.rglob("*") if "ddprun" in file.name]
