"""Prints the sanitizer builds that ./dev test runs: all three, or only the build that suits the changes since the last commit
that passed.

The three sanitizer builds take a third of the time of a whole CI run. The builds asan and tsan test the code of the launcher and
trainer/collectives. The build
readers (ASan, UBSan and fuzzers) tests the trainer's file readers. A typical change affects only one of these areas. So this program
prints the build to which most of the changed lines belong: tsan for launcher files that use threads, asan for other launcher files,
readers for file readers. `.ci/long` runs all three.

All three builds run if no commit has passed on this machine, if this clone does not contain that commit, or if a build file
has changed. No sanitizer build runs if no C++ file of these areas has changed, for example after a change in the docs.

usage: choose_sanitizers.py FILE    FILE contains the hash of the commit that passed last (written by .ci/run)
"""

import collections
import pathlib
import re
import subprocess
import sys

ALL = ["asan", "tsan", "readers"]
SOURCE = re.compile(r"\.(?:cpp|hpp|h|c)$")
READERS = re.compile(r"^(?:tests/)?(?:trainer/(?:data|tables|tokens|image_files|exported|checkpoint|readers)|fuzz)/")
LAUNCHER_SIDE = re.compile(r"^(?:tests/)?(?:common|rendezvous|launcher|cmd/ddprun|trainer/collectives)/")
BUILD = re.compile(r"(?:^|/)(?:CMakeLists\.txt|CMakePresets\.json)$|^cmake/|^dev$|^tools/|^requirements/|^tests/choose_sanitizers\.py$")
THREADS = re.compile(r"std::(?:jthread|thread|mutex|atomic|condition_variable|future|promise)|co_spawn|boost::asio::post")


def git(root, *words):
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else None


def changed_lines(root, commit):
    """Returns the number of changed lines per file between `commit` and the working tree, or None if this clone does not
    contain the commit."""
    tracked = git(root, "diff", "--numstat", "--no-renames", commit)
    others = git(root, "ls-files", "--others", "--exclude-standard")
    if tracked is None or others is None:
        return None
    lines = {}
    for row in tracked.splitlines():
        added, removed, name = row.split("\t")
        lines[name] = 1 if added == "-" else int(added) + int(removed)
    return lines | {name: 1 for name in others.splitlines()}


def chosen(root, passed):
    try:
        commit = passed.read_text().strip()
    except OSError:
        return ALL
    lines = changed_lines(root, commit) if re.fullmatch(r"[0-9a-f]{40}", commit) else None
    if lines is None or any(BUILD.search(name) for name in lines):
        return ALL
    weight = collections.Counter()
    for name, count in lines.items():
        if not SOURCE.search(name):
            continue
        if READERS.search(name):
            weight["readers"] += count
        elif LAUNCHER_SIDE.search(name):
            text = (root / name).read_text(errors="replace") if (root / name).exists() else ""
            weight["tsan" if THREADS.search(text) else "asan"] += count
    return [max(ALL, key=lambda preset: weight[preset])] if weight else []


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print("\n".join(chosen(pathlib.Path(__file__).resolve().parents[1], pathlib.Path(sys.argv[1]))))
