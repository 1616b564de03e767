"""Tests of the examples in examples/. Each test runs the first block of commands of an example's README in a copy of the
example's folder, and checks the output."""

import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import typing

import jobs
import pytest
from test_install import build, install  # noqa: F401  (build is a fixture)

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
MAX_LINES = 60  # maximum number of lines of an example's README
TIMEOUT_S = float(os.environ.get("DDPRUN_EXAMPLES_TIMEOUT", 500))  # timeout of each command
GLOO_RACE = "terminate called without an active exception"  # see docs/internals/decisions/tests/python-sigabrt.md


class Example(typing.NamedTuple):
    folder: str
    shows: str  # a regular expression that the whole output must match
    codes: tuple[int, ...] = (0,)  # allowed exit codes, one for each command
    modules: tuple[str, ...] = ()  # Python packages that the example imports
    is_cpp: bool = False  # true if the example is C++ code that is built against ddprun installed in ~/.local


TABLE = [
    Example("ddp", r"epoch 5/5: 9\d\.\d% right with 2 workers\n", modules=("torch",)),
    Example("hugging-face", r"step 60/60  loss (.|\n)*test accuracy (9\d\.\d|100\.0)%", modules=("torch", "transformers", "accelerate")),
    Example("lightning", r"step 160/160  loss (.|\n)*epoch 5: test accuracy 9\d\.\d%", modules=("torch", "lightning")),
    Example("resume", r"saved after step (\d+)\n(.|\n)*after saving(.|\n)*continuing after step \1\n(.|\n)*finished with a loss of 0\.0018\n", (85, 0), ("torch",)),
    Example("images", r"done: test accuracy (8[5-9]|9\d|100)\.\d\d %", (0, 0)),
    Example("table", r"done: test accuracy 9\d\.\d\d %", (0, 0)),
    Example("text", r"done: test loss 0\.[1-4]\d+, (.|\n)*\nthe small .*\.\n", (0, 0, 0)),
    Example("exported-model", r"bitwise equal(.|\n)*done: test accuracy (9\d\.\d\d|100\.00) %", (0, 0, 0), ("torch", "safetensors")),
    Example("cpp-model", r"done: test loss 0\.00\d+, ", (0, 0, 0), is_cpp=True),
    Example("cpp-loop", r"step 1,000/1,000  loss 0\.0\d+", (0, 0, 0), is_cpp=True),
]


def commands(folder: pathlib.Path) -> list[str]:
    block = re.search(r"^```sh\n(.*?)^```$", (folder / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    assert block, f"{folder}/README.md has no block of commands"
    return block[1].splitlines()


@pytest.fixture
def home(request, tmp_path) -> pathlib.Path:
    """Returns a home folder with ddprun installed in .local."""
    installation = request.getfixturevalue("build")
    if not (installation / "sdk/libddprun_worker.a").exists() or not shutil.which("c++"):
        pytest.skip("needs a build with the trainer, and a compiler")
    (tmp_path / "home").mkdir()
    install(installation, tmp_path / "home/.local")
    return tmp_path / "home"


def run_all(example: Example, folder: pathlib.Path, environment: dict[str, str]) -> tuple[list[int], str]:
    codes, output = [], ""
    for command in commands(EXAMPLES / example.folder):
        start = time.monotonic()
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=jobs.clean_environment(**environment), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, errors="replace", timeout=TIMEOUT_S, check=False)
        print(f"{time.monotonic() - start:6.1f} s, exit code {done.returncode}: {command}")
        codes.append(done.returncode)
        output += done.stdout
        if done.returncode not in example.codes:
            break
    return codes, output


@pytest.mark.parametrize("example", TABLE, ids=[example.folder for example in TABLE])
def test_the_first_commands_of_the_readme_work(example, ddprun_bin, ddptrain_bin, request, tmp_path):
    if "torch" in example.modules and os.environ.get("DDPRUN_NO_TORCH_PYTHON"):
        pytest.skip("left out by --no-python")
    missing = [module for module in example.modules if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"needs {' and '.join(missing)} (requirements/python-tests.txt and python-programs.txt)")
    paths = [str(ddprun_bin.parent), str(pathlib.Path(sys.executable).parent), os.environ["PATH"]]
    environment = {"PYTHONPATH": str(ROOT / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    if example.is_cpp:
        home = request.getfixturevalue("home")
        paths.insert(0, str(home / ".local/bin"))
        environment = {"HOME": str(home)}
        if shutil.which("ninja"):
            environment["CMAKE_GENERATOR"] = "Ninja"
        if shutil.which("ccache"):
            environment |= {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_DIR": os.environ.get("CCACHE_DIR", str(pathlib.Path.home() / ".cache/ccache")),
                            # With these variables ccache can reuse the objects of an earlier test run.
                            "CCACHE_BASEDIR": str(tmp_path), "CCACHE_NOHASHDIR": "1"}
    for attempt in range(4):
        folder = tmp_path / f"attempt-{attempt}" / example.folder
        shutil.copytree(EXAMPLES / example.folder, folder)
        codes, output = run_all(example, folder, {**environment, "PATH": os.pathsep.join(paths)})
        if GLOO_RACE not in output:
            break
    assert tuple(codes) == example.codes, output
    assert re.search(example.shows, output), output


def test_every_example_is_in_the_table_and_in_the_index():
    folders = sorted(folder.name for folder in EXAMPLES.iterdir() if folder.is_dir())
    assert folders == sorted(example.folder for example in TABLE) and len(folders) == 10
    assert re.findall(r"^\| \[[\w-]+\]\(([\w-]+)/README\.md\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.M) == [example.folder for example in TABLE]


def test_every_file_of_an_example_is_at_most_a_page():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "examples"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("needs a git checkout")
    counts = {name: len((ROOT / name).read_text(encoding="utf-8").splitlines()) for name in listed.stdout.splitlines()}
    assert len(counts) > 25 and {name: count for name, count in counts.items() if count > MAX_LINES} == {}
