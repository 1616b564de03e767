"""Tests that the archive third_party/headers.tar.xz is complete, and that a damaged archive is refused. test_package.py tests
an installation that uses this archive."""

import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "third_party"))
import bundle  # noqa: E402


def test_each_header_that_the_launcher_includes_is_in_the_bundle():
    with tarfile.open(ROOT / "third_party/headers.tar.xz") as archive:
        bundled = {name.removeprefix("include/") for name in archive.getnames() if name.startswith("include/")}
        assert {name.removeprefix("licences/") for name in archive.getnames() if name.startswith("licences/")} == set(bundle.PACKAGES)
    for folder in bundle.SOURCES:
        for file in (ROOT / folder).rglob("*.[ch]pp"):
            included = [name.decode() for name in bundle.INCLUDE.findall(file.read_bytes()) if name.decode().startswith(bundle.ALL_INCLUDES)]
            assert set(included) <= bundled, f"{file}: run ./dev bundle"


def test_a_damaged_bundle_is_refused(tmp_path):
    shutil.copytree(ROOT / "third_party", tmp_path / "third_party")
    with (tmp_path / "third_party/headers.tar.xz").open("ab") as file:
        file.write(b"x")
    module = (ROOT / "cmake/ThirdParty.cmake").read_text(encoding="utf-8")
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(test CXX)\nset(DDPRUN_BUNDLED_HEADERS ON)\n" + module, encoding="utf-8")
    done = subprocess.run(["cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and re.search(r"headers\.tar\.xz is\s+damaged", done.stderr), done.stderr
