"""The files of the wheel for users without pip: a tarball for ~/.local and, for the launcher only, a Debian package. Called by package.py, which has
built and checked the wheel."""

import gzip
import hashlib
import io
import os
import pathlib
import shutil
import subprocess
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
UNINSTALL = """#!/bin/sh
# Removes the tarball's files, and folders that are then empty.
cd "$(dirname "$0")/../.." || exit 1
files=$(cut -c67- share/{name}/SHA256SUMS) || exit 1
rm share/{name}/SHA256SUMS
{more}
echo "$files" | while read -r file; do rm -f "$file"; rmdir -p "$(dirname "$file")" 2>/dev/null; done
exit 0
"""
CONTROL = """Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: the ddprun authors <ddprun@localhost>
Installed-Size: {kilobytes}
Depends: {depends}
{more}Section: science
Priority: optional
Description: {summary}
 ddprun starts one worker process per GPU or core, restarts workers when one
 fails, reports what failed first and why, and leaves no process behind.
"""


# Removes files that Python or the user has made next to the tarball's files.
ALSO_REMOVED = {"ddprun": """rm -rf share/ddprun/python/ddprun/__pycache__ share/ddprun/python/ddprun/_spare/__pycache__
[ "$(readlink bin/torchrun)" != ddprun ] || bin/ddprun link-torchrun --remove""",
                "ddprun-trainer": "[ ! -L lib/ddprun/torch ] || rm lib/ddprun/torch"}
PRERM = """#!/bin/sh
[ "$1" != remove ] || [ "$(readlink /usr/bin/torchrun)" != ddprun ] || /usr/bin/ddprun link-torchrun --remove
"""


def version_of(wheel: pathlib.Path) -> str:
    return wheel.name.split("-")[1]


def files_of(wheel: pathlib.Path, name: str = "ddprun") -> dict[str, tuple[bytes, int]]:
    """A wheel's files by their path below the prefix, each with its mode."""
    placed = {}
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            folder, _, rest = member.partition("/")
            if member.endswith("/") or not rest:
                continue
            if folder.endswith(".data"):
                kind, _, rest = rest.partition("/")
                place = {"scripts": f"bin/{rest}", "data": rest}[kind]
            elif folder.endswith(".dist-info") and rest.startswith("licenses/"):
                place = f"share/doc/{name}/{rest.rpartition('/')[2]}"
            elif member.endswith(".py"):  # modules for Python scripts, with that folder on PYTHONPATH
                place = f"share/ddprun/python/{member}"
            else:
                continue  # files that only pip reads
            content = archive.read(member)
            placed[place] = (content, 0o755 if content.startswith(b"\x7fELF") or place.startswith("bin/") else 0o644)
    return placed


def documents() -> dict[str, tuple[bytes, int]]:
    """README and the examples next to docs/, so that the links work, and the configs."""
    named = [line for line in subprocess.run(["git", "-C", ROOT, "ls-files", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "examples", "configs"],
                                             check=True, capture_output=True, text=True).stdout.splitlines() if (ROOT / line).is_file()]
    return {f"share/ddprun/{name}" if name.startswith("configs/") else f"share/doc/ddprun/{name}": ((ROOT / name).read_bytes(), 0o644) for name in named}


def sums_of(files: dict[str, tuple[bytes, int]]) -> bytes:
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {place}\n" for place, (content, _) in sorted(files.items())).encode()


def make_tarball(wheel: pathlib.Path, target: str, into: pathlib.Path, name: str = "ddprun") -> pathlib.Path:
    """The top folders are bin, lib and share: `tar -C ~/.local -xf FILE`. The same input gives the same bytes. `name` is ddprun, which includes the
    documents, or ddprun-trainer."""
    files = {**(documents() if name == "ddprun" else {}), **files_of(wheel, name)}
    files[f"share/{name}/uninstall.sh"] = (UNINSTALL.format(name=name, more=ALSO_REMOVED[name]).encode(), 0o755)
    files[f"share/{name}/SHA256SUMS"] = (sums_of(files), 0o644)
    made = into / f"{name}-{version_of(wheel)}-linux-{target}.tar.gz"
    moment = int(os.environ.get("SOURCE_DATE_EPOCH", subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%ct"], check=True, capture_output=True,
                                                                    text=True).stdout))
    with made.open("wb") as raw, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for place, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(place)
            entry.size, entry.mode, entry.mtime = len(content), mode, moment
            archive.addfile(entry, io.BytesIO(content))
    return made


def make_deb(wheel: pathlib.Path, architecture: str, glibc: str, stage: pathlib.Path, into: pathlib.Path) -> pathlib.Path:
    """Installs below /usr, in Debian's usual folders for each kind of file."""
    version = version_of(wheel)
    root = stage / "deb"
    shutil.rmtree(root, ignore_errors=True)
    files = {**documents(), **files_of(wheel)}
    notice = files.pop("share/doc/ddprun/NOTICE", (b"", 0))[0]
    licence = files.pop("share/doc/ddprun/LICENSE")[0]
    files["share/doc/ddprun/copyright"] = (licence + b"\n" + notice, 0o644)
    for place, (content, mode) in files.items():
        place = place.replace("share/zsh/site-functions", "share/zsh/vendor-completions")
        if place.startswith("share/man/"):
            place, content = place + ".gz", gzip.compress(content, mtime=0)
        file = root / "usr" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)
    for folder in [root, *(each for each in root.rglob("*") if each.is_dir())]:
        folder.chmod(0o755)
    control = CONTROL.format(name="ddprun", version=version, architecture=architecture, kilobytes=sum(len(content) for content, _ in files.values()) // 1024,
                             depends=f"libc6 (>= {glibc})", more="Suggests: libhwloc15, python3\n",
                             summary="launcher and runner for distributed training")
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN" / "control").write_text(control)
    (root / "DEBIAN" / "prerm").write_text(PRERM)
    (root / "DEBIAN" / "prerm").chmod(0o755)
    made = into / f"ddprun_{version}_{architecture}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "--build", root, made], check=True, stdout=subprocess.DEVNULL)
    return made


def write_sums(folder: pathlib.Path) -> None:
    """Writes the checksums of all files in dist/."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != "SHA256SUMS")
    (folder / "SHA256SUMS").write_text("".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files))
