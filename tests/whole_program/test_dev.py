"""Tests of ./dev for a user without root privileges. It must report exactly the missing build dependencies. An installed
dependency is accepted, no matter which package it comes from."""

import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def without_root(*hidden: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `./dev build launcher` as a user without root privileges. For this command the folders `hidden` in /usr/include are
    empty, so it fails before it builds."""
    hide = "".join(f"mount -t tmpfs none /usr/include/{folder} && " for folder in hidden)
    words = " ".join(f"{name}='{value}'" for name, value in environment.items())
    # In a new user namespace the process has no root privileges, but can still read the files.
    return subprocess.run(["unshare", "-m", "sh", "-c", f"{hide} exec unshare -U env {words} ./dev build launcher"], cwd=ROOT, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module", autouse=True)
def hideable():
    folders = [pathlib.Path("/usr/include") / name for name in ("boost", "CLI", "nlohmann", "openssl")]
    possible = subprocess.run(["unshare", "-m", "sh", "-c", "mount -t tmpfs none /usr/include/CLI && unshare -U true"], capture_output=True, check=False)
    if possible.returncode != 0 or not all(folder.is_dir() for folder in folders) or not (ROOT / "dev").exists() or not shutil.which("apt-get"):
        pytest.skip("this user cannot hide folders, or the headers of this machine are in another folder")


def test_missing_build_dependencies_are_named_with_packages():
    done = without_root("CLI", "boost", "openssl")
    assert done.returncode == 1, done
    lines = done.stderr.splitlines()
    assert lines[0] == "dev: the build needs these programs and libraries, which are not installed:"
    assert any(line.endswith(", Boost 1.81 or newer") for line in lines), done.stderr
    named = {line.split()[0]: line.split("Debian package ")[1].split(",")[0] for line in lines[1:] if line.startswith("  ") and "Debian package" in line}
    assert set(named) == {"boost/asio/as_tuple.hpp", "CLI/CLI.hpp", "openssl/ssl.h"}, done.stderr
    assert named["boost/asio/as_tuple.hpp"] in ("libboost1.81-dev", "libboost-dev")
    assert lines[-1] == f"  apt-get install -y --no-install-recommends {named['boost/asio/as_tuple.hpp']} libcli11-dev libssl-dev"


def test_boost_is_detected_by_its_components(tmp_path):
    """A Boost installation in a user's folder is accepted if it has the required headers. An outdated Boost does not have one
    of these headers."""
    folder = tmp_path / "mine" / "include" / "boost" / "asio"
    folder.mkdir(parents=True)
    done = without_root("CLI", "boost", CMAKE_PREFIX_PATH=str(tmp_path / "mine"))
    assert done.returncode == 1 and "boost/asio/as_tuple.hpp" in done.stderr
    (folder / "as_tuple.hpp").touch()
    done = without_root("CLI", "boost", CMAKE_PREFIX_PATH=str(tmp_path / "mine"))
    assert done.returncode == 1 and "CLI/CLI.hpp" in done.stderr and "boost" not in done.stderr


def test_cmake_names_the_required_boost(tmp_path):
    for name, content in {"boost/asio/as_tuple.hpp": "", "boost/beast/http.hpp": "", "boost/version.hpp": '#define BOOST_LIB_VERSION "1_99"\n'}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "CMakeLists.txt").write_text("cmake_minimum_required(VERSION 3.25)\nproject(p LANGUAGES NONE)\n"
                                             "set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)\nset(CMAKE_FIND_USE_SYSTEM_ENVIRONMENT_PATH OFF)\n"
                                             f"include({ROOT}/cmake/Boost.cmake)\n")

    def configured(name: str, where: pathlib.Path) -> str:
        done = subprocess.run(["cmake", "-S", tmp_path, "-B", tmp_path / name, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={where}"], capture_output=True,
                              text=True, timeout=120, check=False)
        return " ".join((done.stdout + done.stderr).split())

    assert "Boost 1.81 or newer (boost/asio/as_tuple.hpp) was not found" in configured("none", tmp_path / "nowhere")
    assert f"Boost in {tmp_path} lacks boost/crc.hpp" in configured("part", tmp_path)
    (tmp_path / "boost/crc.hpp").touch()
    assert f"Boost 1_99: {tmp_path}" in configured("whole", tmp_path)
