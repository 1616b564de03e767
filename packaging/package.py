"""Builds the packages for users: a wheel of the launcher that runs on any Linux with glibc 2.28 (2018) or newer.

    ./dev package [--target x86_64|aarch64]      dist/ddprun-VERSION-py3-none-manylinux_2_28_TARGET.whl,
                                                 the same files as a .tar.gz and a .deb (archives.py), and dist/SHA256SUMS
    ./dev package --trainer                      the wheel of ddptrain, from build/ (trainer.py), and its files as a .tar.gz

Its compiler is the Python package ziglang, which contains clang, libc++ and the interface of each glibc; headers and static libraries come from
Debian's -dev packages, downloaded and unpacked, not installed. So the packages contain nothing of this machine, and those
for another processor are built in the same way."""

import argparse
import importlib.util
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import zipfile

import archives
import audit
import trainer

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLIBC = "2.28"
DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}
PACKAGES = ("libboost1.81-dev", "nlohmann-json3-dev", "libcli11-dev", "libssl-dev", "libxxhash-dev", "libprotozero-dev", "libhwloc-dev", "libhwloc15")
LINKED = ("libssl-dev", "libboost1.81-dev", "nlohmann-json3-dev", "libcli11-dev", "libxxhash-dev", "libprotozero-dev")
# Libraries that the programs may need on the user's machine: glibc's own and, for the module of --numa-binding, hwloc.
ALLOWED_LIBRARIES = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-[a-z0-9-]+)\.so\.\d+")
LIBRARIES_OF_MODULES = {"libddprun_topology.so": {"libhwloc.so.15"}}
MAX_BYTES = 6_000_000


def run(*words: object, **more) -> str:
    return subprocess.run([str(word) for word in words], check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def log(text: str) -> None:
    print(text, flush=True)


# ---- inputs of the build ----


def unpack_packages(stage: pathlib.Path, target: str) -> None:
    """Unpacks Debian's packages for that processor. They come from the machine's package sources, with a separate apt state folder."""
    debs = stage / "debs"
    if (stage / "done").exists() and (stage / "done").read_text() == " ".join(PACKAGES):
        return
    (debs / "partial").mkdir(parents=True, exist_ok=True)
    (stage / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (stage / "dpkg-status").touch()
    settings = [f"APT::Architecture={DEBIAN_NAMES[target]}", f"APT::Architectures={DEBIAN_NAMES[target]}", f"Dir::State::Lists={stage}/lists",
                f"Dir::State::status={stage}/dpkg-status", f"Dir::Cache={stage}/cache", "APT::Sandbox::User=root"]
    (stage / "cache" / "archives" / "partial").mkdir(parents=True, exist_ok=True)
    options = [word for setting in settings for word in ("-o", setting)]
    log(f"Downloading Debian's packages for {target}")
    run("apt-get", "-qq", *options, "update")
    run("apt-get", "-qq", *options, "download", *PACKAGES, cwd=debs)
    for deb in sorted(debs.glob("*.deb")):
        run("dpkg", "-x", deb, stage)
    for static in stage.glob("usr/lib/*/libhwloc.a"):
        static.unlink()  # not built for use in a module (shared library)
    (stage / "done").write_text(" ".join(PACKAGES))


def write_compilers(stage: pathlib.Path, target: str) -> None:
    (stage / "bin").mkdir(parents=True, exist_ok=True)
    headers = f"-isystem {stage}/usr/include/{target}-linux-gnu"
    for name, words in {"cc": f"cc -target {target}-linux-gnu.{GLIBC} {headers}", "c++": f"c++ -target {target}-linux-gnu.{GLIBC} {headers}",
                        "ar": "ar", "ranlib": "ranlib"}.items():
        file = stage / "bin" / f"zig-{name}"
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {words} "$@"\n')
        file.chmod(0o755)


def write_notice(stage: pathlib.Path) -> pathlib.Path:
    """The authors of the code that is linked into the programs, with the licences that must be included."""
    parts = copyrights(stage, LINKED)
    ziglang = pathlib.Path(importlib.util.find_spec("ziglang").origin).parent
    parts.append(("libc++, libc++abi and libunwind of LLVM", ziglang / "lib/libcxx/LICENSE.TXT"))
    return written_notice(stage / "NOTICE", parts)


def copyrights(root: pathlib.Path, packages: tuple[str, ...]) -> list[tuple[str, pathlib.Path]]:
    return [(f"{package[3:] if package.startswith('lib') else package}", root / "usr/share/doc" / package / "copyright") for package in packages]


def written_notice(notice: pathlib.Path, parts: list[tuple[str, pathlib.Path]]) -> pathlib.Path:
    notice.write_text("ddprun's programs contain parts of the software named here.\n" + "".join(
        f"\n{'=' * 80}\n{name}\n{'=' * 80}\n{file.read_text(errors='replace')}" for name, file in parts))
    return notice


# ---- forbidden dependencies ----


def needs(file: pathlib.Path) -> tuple[set[str], set[tuple[int, ...]]]:
    """The libraries that an ELF file needs, and the glibc versions of the symbols that it needs."""
    libraries = set(re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", file)))
    versions = set(re.findall(r"Name: GLIBC_([0-9.]+)", run("readelf", "-VW", file)))
    return libraries, {tuple(map(int, version.split("."))) for version in versions}


def compress(wheel: pathlib.Path) -> None:
    """Writes the wheel again with the strongest compression, which makes it half a percent smaller."""
    small = wheel.with_suffix(".small")
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(small, "w") as result:
        for entry in archive.infolist():
            result.writestr(entry, archive.read(entry), zipfile.ZIP_DEFLATED, compresslevel=9)
    small.replace(wheel)


def mistakes_of(wheel: pathlib.Path, folder: pathlib.Path) -> list[str]:
    """The reasons against publishing that wheel. Prints the dependencies of each of its programs."""
    mistakes = []
    if wheel.stat().st_size > MAX_BYTES:
        mistakes.append(f"{wheel.name} has {wheel.stat().st_size} bytes, more than {MAX_BYTES}")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    for file in sorted(each for each in folder.rglob("*") if each.is_file() and each.open("rb").read(4) == b"\x7fELF"):
        libraries, versions = needs(file)
        newest = ".".join(map(str, max(versions)))
        log(f"  {file.name}: {file.stat().st_size} bytes, {', '.join(sorted(libraries))}, symbols up to GLIBC_{newest}")
        if max(versions) > tuple(map(int, GLIBC.split("."))):
            mistakes.append(f"{file.name} needs symbols of glibc {newest}")
        mistakes += [f"{file.name} needs {library}" for library in sorted(libraries)
                     if not ALLOWED_LIBRARIES.fullmatch(library) and library not in LIBRARIES_OF_MODULES.get(file.name, set())]
    return mistakes


# ---- the build ----


def stage_of(target: str) -> pathlib.Path:
    return ROOT / "build-wheel" / f"stage-{target}"


def pages() -> pathlib.Path:
    """The manual page and the completions of today's sources. This machine's program prints them; one for another processor cannot run here."""
    here = platform.machine()
    make_wheel(here, ROOT / "build-wheel" / "unused")
    return ROOT / "build-wheel" / here / "pages"


def make_wheel(target: str, into: pathlib.Path) -> pathlib.Path:
    stage = stage_of(target)
    foreign = [f"-DDDPRUN_PAGES={pages()}"] if target != platform.machine() else []
    unpack_packages(stage, target)
    write_compilers(stage, target)
    log(f"Building the wheel for {target}")
    made = stage / "wheel"
    made.mkdir(exist_ok=True)
    for old in made.glob("*.whl"):
        old.unlink()
    cmake_arguments = [f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/packaging/zig.cmake", f"-DDDPRUN_TARGET={target}", f"-DDDPRUN_STAGE={stage}",
                       f"-DDDPRUN_NOTICE={write_notice(stage)}", *foreign]
    run(sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation", f"--config-settings=cmake.args={';'.join(cmake_arguments)}",
        f"--config-settings=build-dir={ROOT}/build-wheel/{target}", "--wheel-dir", made, ROOT,
        env={**os.environ, "_PYTHON_HOST_PLATFORM": f"linux-{target}", "CMAKE_GENERATOR": "Ninja"})
    [plain] = made.glob("*.whl")
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", f"manylinux_{GLIBC.replace('.', '_')}_{target}", plain)
    [tagged] = made.glob("*.whl")
    compress(tagged)
    mistakes = mistakes_of(tagged, stage / "unpacked") + audit.mistakes_of(tagged, {"libhwloc.so.15"})
    if mistakes:
        raise SystemExit("package: " + "\npackage: ".join(mistakes))
    into.mkdir(exist_ok=True)
    return tagged.replace(into / tagged.name)


def main() -> None:
    if missing := [tool for tool in ("apt-get", "dpkg", "readelf", "cmake", "ninja") if not shutil.which(tool)]:
        raise SystemExit(f"package: {', '.join(missing)} not found; build wheels on Debian or Ubuntu, they run on any Linux")
    parser = argparse.ArgumentParser(prog="./dev package", description=__doc__.split("\n")[0])
    parser.add_argument("--target", choices=sorted(DEBIAN_NAMES), default="x86_64")
    parser.add_argument("--trainer", action="store_true", help="package ddptrain instead, from the build/ of ./dev build")
    arguments = parser.parse_args()
    target, folder = arguments.target, ROOT / "dist"
    if arguments.trainer:
        version = re.search(r"project\(ddprun VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
        (ROOT / "build-wheel").mkdir(exist_ok=True)
        notice = written_notice(ROOT / "build-wheel" / "NOTICE-trainer", copyrights(pathlib.Path("/"), trainer.LINKED))
        wheel = trainer.make_wheel(ROOT / "build", version, notice, folder)
        made = [wheel, archives.make_tarball(wheel, platform.machine(), folder, "ddprun-trainer")]
    else:
        wheel = make_wheel(target, folder)
        made = [wheel, archives.make_tarball(wheel, target, folder),
                archives.make_deb(wheel, DEBIAN_NAMES[target], GLIBC, stage_of(target), folder)]
    archives.write_sums(folder)
    for file in made:
        log(f"Built: {file.relative_to(ROOT)}, {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
