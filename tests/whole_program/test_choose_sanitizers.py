"""Tests of tests/choose_sanitizers.py. This program chooses the sanitizer builds of a test run. The choice depends on the
changes since the last commit that passed the tests."""

import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))
import choose_sanitizers  # noqa: E402

ALL = ["asan", "tsan", "readers"]


@pytest.fixture
def clone(tmp_path):
    """Returns a repository with one commit. A file records that this commit has passed the tests."""
    root = tmp_path / "clone"
    root.mkdir()

    def git(*words):
        return subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=root, check=True, capture_output=True, text=True).stdout

    for name, text in {"launcher/a.cpp": "int a;\n", "launcher/b.cpp": "std::mutex b;\n", "trainer/tables/c.cpp": "int c;\n", "dev": "\n", "docs/d.md": "\n"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "one")
    passed = tmp_path / "passed"
    passed.write_text(git("rev-parse", "HEAD"))
    return root, passed


@pytest.mark.parametrize("changes, builds", [
    ({}, []),
    ({"docs/d.md": "text\n"}, []),
    ({"launcher/a.cpp": "int b;\n"}, ["asan"]),
    ({"launcher/b.cpp": "std::mutex c;\n"}, ["tsan"]),
    ({"trainer/tables/c.cpp": "int d;\nint e;\n", "launcher/a.cpp": "int b;\n"}, ["readers"]),
    ({"launcher/new.cpp": "int f;\n"}, ["asan"]),
    ({"dev": "build\n"}, ALL),
    ({"tools/build.sh": "build\n"}, ALL),
])
def test_the_largest_change_chooses_the_build(clone, changes, builds):
    root, passed = clone
    for name, text in changes.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    assert choose_sanitizers.chosen(root, passed) == builds


@pytest.mark.parametrize("text", ["", "0" * 40, "not a commit"])
def test_without_a_known_commit_all_run(clone, tmp_path, text):
    root, _ = clone
    unknown = tmp_path / "unknown"
    unknown.write_text(text)
    assert choose_sanitizers.chosen(root, unknown) == ALL
    assert choose_sanitizers.chosen(root, tmp_path / "missing") == ALL
