"""Makes headers.tar.xz: the headers of other projects that the launcher includes, with their licences.

    ./dev bundle          writes third_party/headers.tar.xz, and its hash and the versions into third_party/headers.txt

CMake uses the bundle on a machine without these headers (cmake/ThirdParty.cmake). The headers come from the Debian packages that are installed on this
machine. Boost alone has 15,000 headers, so the bundle has only those that are reachable from the launcher's sources. An #include in an inactive branch of
a conditional counts too, because other processors and compilers take other branches. The same packages give the same bytes."""

import hashlib
import io
import lzma
import pathlib
import re
import subprocess
import sys
import tarfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCES = ("common", "rendezvous", "launcher", "cmd/ddprun", "sdk/channel")
SYSTEM = pathlib.Path("/usr/include")
# The Debian package of each library, and the start of its headers' names.
PACKAGES = {"libboost1.81-dev": "boost/", "nlohmann-json3-dev": "nlohmann/", "libcli11-dev": "CLI/", "libxxhash-dev": "xxh", "libprotozero-dev": "protozero/",
            "libssl-dev": "openssl/"}
# Directories whose files are included through macros, so that no scan finds them.
WHOLE = ("boost/config", "boost/preprocessor", "boost/mpl/aux_/preprocessed/plain", "boost/mpl/aux_/preprocessed/gcc", "boost/regex")
INCLUDE = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.M)
ALL_INCLUDES = tuple(PACKAGES.values())


def place(name: str) -> pathlib.Path | None:
    """The file of a header on this machine. Debian keeps OpenSSL's settings in the folder of the processor."""
    for folder in (SYSTEM, *SYSTEM.glob("*-linux-gnu")):
        if (folder / name).is_file():
            return folder / name
    return None


def reachable() -> dict[str, pathlib.Path]:
    """Name and file of each header that the sources include, directly or through others."""
    waiting = [str(file.relative_to(SYSTEM)) for folder in WHOLE for file in sorted((SYSTEM / folder).rglob("*.hpp"))]
    for folder in SOURCES:
        for file in sorted((ROOT / folder).rglob("*.[ch]pp")):
            waiting += [name.decode() for name in INCLUDE.findall(file.read_bytes()) if name.decode().startswith(ALL_INCLUDES)]
    found: dict[str, pathlib.Path] = {}
    while waiting:
        name = waiting.pop()
        file = place(name)
        if name in found or file is None:
            continue
        found[name] = file
        folder = pathlib.PurePosixPath(name).parent
        for each in INCLUDE.findall(file.read_bytes()):
            included = each.decode()
            # A name in quotes may be relative to the header's own folder.
            waiting += [name for name in (str(folder / included), included) if name.startswith(ALL_INCLUDES)]
    return found


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    archive.addfile(entry, io.BytesIO(content))


def version(package: str) -> str:
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"bundle: {package} is not installed; ./dev setup installs it")
    return done.stdout


def main() -> None:
    versions = {package: version(package) for package in PACKAGES}
    headers = reachable()
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(headers):
            add(archive, f"include/{name}", headers[name].read_bytes())
        for package in PACKAGES:
            add(archive, f"licences/{package}", pathlib.Path(f"/usr/share/doc/{package}/copyright").read_bytes())
    packed = lzma.compress(raw.getvalue(), preset=9 | lzma.PRESET_EXTREME)
    (HERE / "headers.tar.xz").write_bytes(packed)
    lines = [f"sha256 {hashlib.sha256(packed).hexdigest()}", *(f"{package} {versions[package]}" for package in PACKAGES)]
    (HERE / "headers.txt").write_text("\n".join(lines) + "\n")
    print(f"third_party/headers.tar.xz: {len(headers):,} headers, {len(packed):,} bytes")


if __name__ == "__main__":
    main()
