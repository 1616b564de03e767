"""Fixtures of the whole-program tests. The tests run the programs in $DDPRUN_BUILD_DIR (default: build/), or $DDPRUN_BIN and
$DDPTRAIN_BIN. Tests that need something which the machine does not have, for example a GPU, are skipped with a reason and
counted."""

import importlib.util
import os
import pathlib
import signal
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("DDPRUN_BUILD_DIR", ROOT / "build"))


# Test files that take more than 15 s, the longest first. Pytest starts them in this order, because a long file that starts
# last would run alone at the end. All other files start after them.
LONGEST = ["python_equivalence", "live_recovery", "python_programs", "exported_models", "examples", "snapshots", "docs_recipes", "sdk", "nodes",
           "torchrun_contract", "kill_matrix", "standby", "network_faults", "soak", "hangs", "custom_loop", "checkpoints", "gpt", "bench",
           "live_nodes", "precision", "slurm_submit", "slurm", "stragglers", "custom_worker", "live_lost_nodes", "surroundings", "lent_snapshots", "recovery",
           "step_parts", "synced_batch_norm", "hosts", "ssh_hosts", "doctor_of_nodes", "torchrun_nodes", "silent_corruption", "stop_signals", "generate", "stalls", "spares",
           "synthetic", "start_scripts", "running_jobs", "gpt_real_run", "machine", "lora", "evaluation_rules", "skipped_steps", "edge_cases",
           "script_store"]
# `./dev test --quick` skips the files in LONGEST, except the files in this list.
QUICK_TOO = ["kill_matrix", "recovery"]


def pytest_configure(config):
    config.option.loadscopereorder = False  # without this, pytest-xdist would start the files with the most tests first
    # nohup and background shells ignore some signals that the tests send. All processes of the tests would inherit these
    # settings, so the default handlers are set again.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    # These markers are registered in pytest.ini as well, but pytest does not read that file if pytest is started in another
    # folder.
    for line in ("needs_torch_python: compares with Python's PyTorch or starts torchrun; needs the whole wheel",
                 "long: takes more than a minute", "gpu: needs a GPU"):
        config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(items):
    first = {f"test_{name}.py": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: first.get(item.path.name, len(first)))
    if os.environ.get("DDPRUN_QUICK_TESTS"):
        left_out = set(first) - {f"test_{name}.py" for name in QUICK_TOO}
        items[:] = [item for item in items if item.path.name not in left_out]
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
    """A fixture that starts the torchrun of the installed torch. One server process imports torch for all runs
    (whole_program/contract_launchers.py)."""
    import contract_launchers

    launcher = contract_launchers.Torchrun()
    yield launcher
    launcher.close()


@pytest.fixture
def run_dir(tmp_path) -> pathlib.Path:
    """The path of a run directory that does not exist yet."""
    return tmp_path / "run"


@pytest.fixture
def run(tmp_path):
    """Returns a function run(args, timeout=30, **environment). The function runs a program in the folder of the test until the
    program ends, and captures the output of the program as text."""

    def start(args, timeout: float = 30, **environment: str) -> subprocess.CompletedProcess:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("DDPRUN_", "PET_", "TORCHELASTIC_"))}
        return subprocess.run([str(a) for a in args], cwd=tmp_path, env={**inherited, **environment}, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout, check=False)

    return start
