"""Writes the bundle that ./dev gpu runs on a machine with a GPU but without a network. It contains the built programs, the
data, the tests, and pytest. The machine needs only Python and torch, in the version with which the programs were built.

usage: make_bundle.py BUILD BUNDLE.tar.gz
"""

import importlib.util
import io
import json
import os
import pathlib
import platform
import re
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_BYTES = 64 * 1000 * 1000
DATASET = pathlib.Path(os.environ.get("DDPRUN_DATASET", "/usr/share/datasets/fashion-mnist"))
# These modules are pure Python, so they run with Python 3.10 and all later versions.
TEST_MODULES = ["pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments", "pytest_timeout"]
SOURCES = ["configs", "tests/conftest.py", "tests/pytest.ini", "tests/whole_program", "tests/gpu", "bench/python_ddp.py", "python/ddprun", "docs"]


def fail(text: str):
    sys.exit(f"make_bundle: {text}")


def torch_of(build: pathlib.Path) -> pathlib.Path:
    found = [line.partition("=")[2] for line in (build / "CMakeCache.txt").read_text().splitlines() if line.startswith("LIBTORCH:")]
    link = build / "lib/ddprun/torch"
    if not link.is_symlink():
        fail(f"{link} is missing, which names the LibTorch of the build{' (' + found[0] + ')' if found else ''}: build it with the trainer")
    return link.resolve()


def torch_versions(torch: pathlib.Path) -> dict:
    """Returns the torch version and the CUDA version of a LibTorch wheel or archive: {"torch": "2.11.0", "cuda": "13.0"}. "cuda" is empty
    for a torch without CUDA."""
    file = torch / "version.py"
    if not file.exists():
        return {"torch": (torch / "build-version").read_text().strip().split("+")[0], "cuda": ""}
    text = file.read_text()
    cuda = re.search(r"^cuda: .*= '([0-9.]+)'", text, re.MULTILINE)
    return {"torch": re.search(r"__version__ = '([0-9.]+)", text)[1], "cuda": cuda[1] if cuda else ""}


def test_packages():
    """Yields the paths of the modules in TEST_MODULES and of their metadata folders, in which pytest finds its plugins and its version."""
    for name in TEST_MODULES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            fail(f"this Python has no module {name}, which the tests need there")
        path = pathlib.Path(spec.origin)
        path = path.parent if path.name == "__init__.py" else path
        yield path
        yield from (info for kind in ("dist", "egg") for info in path.parent.glob(f"[{name[0]}{name[0].upper()}]{name[1:]}-*.{kind}-info"))


def wanted(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "/__pycache__" in info.name or info.name.endswith(".pyc"):
        return None
    info.uid = info.gid = 0
    info.uname = info.gname = "root"
    return info


def main() -> None:
    build, out = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    about = {**torch_versions(torch_of(build)), "arch": platform.machine(), "libc": platform.libc_ver()[1]}
    cuda_module = build / "lib/ddprun/libddptrain_cuda.so"
    if not cuda_module.exists():
        fail(f"{cuda_module} is not built, without which nothing runs on a GPU: the output of the configure step names the missing headers")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(out, "w:gz", compresslevel=6) as bundle:

        def add(path: pathlib.Path, name: str):
            bundle.add(path, f"ddprun-gpu/{name}", filter=wanted)

        for name in ("ddprun", "ddptrain"):
            if not (build / "bin" / name).exists():
                fail(f"{build / 'bin' / name} is not built")
            add(build / "bin" / name, f"build/bin/{name}")
        for path in sorted((build / "lib/ddprun").glob("*.so")):
            add(path, f"build/lib/ddprun/{path.name}")
        fake = build / "tests/fake_cuda/libddptrain_cuda.so"
        if fake.exists():
            add(fake, "build/tests/fake_cuda/libddptrain_cuda.so")
        for name in SOURCES:
            add(ROOT / name, name)
        for path in test_packages():
            add(path, f"python/{path.name}")
        for path in sorted(DATASET.glob("*-ubyte.gz")):
            add(path.resolve(), f"data/{path.name}")
        text = json.dumps(about, indent=1).encode()
        info = tarfile.TarInfo("ddprun-gpu/bundle.json")
        info.size = len(text)
        bundle.addfile(info, io.BytesIO(text))
    size = out.stat().st_size
    if size > MAX_BYTES:
        fail(f"{out} has {size / 1e6:.1f} MB; at most {MAX_BYTES / 1e6:.0f} MB are carried")
    print(f"{out}: {size / 1e6:.1f} MB, for torch {about['torch']}{' with CUDA ' + about['cuda'] if about['cuda'] else ''} on {about['arch']}")
    print(f"There: tar xzf {out.name} && python3 ddprun-gpu/tests/gpu/check.py --figures FOLDER")


main()
