"""Fixtures of the whole-program tests. The programs under test are those of $DDPRUN_BUILD_DIR (default: build/), or $DDPRUN_BIN and
$DDPTRAIN_BIN. Tests that need what a machine lacks are skipped with a reason, and counted."""

import importlib.util
import os
import pathlib
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", ROOT / "build"))


def pytest_configure(config):
    # Whoever started us with nohup or in the background ignores signals that the tests send, and so would everything we start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # Also registered in pytest.ini; that file is not read when pytest is started elsewhere.
    for line in ("needs_torch_python: compares with Python's PyTorch or starts torchrun; needs the whole wheel",
                 "long: takes more than a minute", "gpu: needs a GPU"):
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(items):
    torch_missing = None
    if os.environ.get("DDPRUN_NO_TORCH_PYTHON"):
        torch_missing = "left out by --no-python"
    elif importlib.util.find_spec("torch") is None:
        torch_missing = "needs Python's torch"
    for item in items:
        if torch_missing and item.get_closest_marker("needs_torch_python"):
            item.add_marker(pytest.mark.skip(reason=torch_missing))
        if item.get_closest_marker("gpu") and not list(pathlib.Path("/dev").glob("nvidia[0-9]*")):
            item.add_marker(pytest.mark.skip(reason="needs a GPU"))
        if item.get_closest_marker("long") and not os.environ.get("DDPRUN_LONG_TESTS"):
            item.add_marker(pytest.mark.skip(reason="takes long; ./dev test --long runs it"))


def program(variable: str, name: str) -> pathlib.Path:
    path = pathlib.Path(os.environ.get(variable, BUILD / "bin" / name)).resolve()
    if not path.exists():
        pytest.fail(f"{path} is not built: ./dev build, or set DDPRUN_BUILD_DIR")
    return path


@pytest.fixture(scope="session")
def ddprun_bin() -> pathlib.Path:
    return program("DDPRUN_BIN", "ddprun")


@pytest.fixture(scope="session")
def ddptrain_bin() -> pathlib.Path:
    return program("DDPTRAIN_BIN", "ddptrain")


@pytest.fixture
def ddprun(ddprun_bin) -> pathlib.Path:
    return ddprun_bin


@pytest.fixture(scope="session")
def torchrun():
    """The real torchrun, imported once in a process of its own (whole_program/contract_launchers.py)."""
    import contract_launchers

    launcher = contract_launchers.Torchrun()
    yield launcher
    launcher.close()


@pytest.fixture
def run_dir(tmp_path) -> pathlib.Path:
    """A run directory that is not there yet."""
    return tmp_path / "run"


@pytest.fixture
def run(tmp_path):
    """run(args, timeout=30, **environment): a finished program, its output as text, started in the test's own folder."""

    def start(args, timeout: float = 30, **environment: str) -> subprocess.CompletedProcess:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DDPRUN_", "PET_", "TORCHELASTIC_"))}
        return subprocess.run([str(a) for a in args], cwd=tmp_path, env={**inherited, **environment}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout, check=False)

    return start
