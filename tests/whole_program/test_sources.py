"""Rules of the sources that no compiler checks."""

import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What is declared at the margin inside an anonymous namespace: a function, a constant, a class. Aliases may be repeated.
DECLARED = re.compile(r"(?! |using|namespace|return|template|TEST|INSTANTIATE|public|private)(?:\[\[\w+\]\] )?(?:[\w:<>,&* ]+?[ &*])(\w+)(?: final)?(?:\(|\{| =|;| : | \{)")
TRAINER_TESTS = sorted(folder.name for folder in (ROOT / "tests" / "trainer").iterdir() if folder.is_dir())
TRAINER = ["trainer", *sorted(f"trainer/{folder.name}" for folder in (ROOT / "trainer").iterdir() if folder.is_dir())]
OVERLOADS = {"to_json", "from_json"}  # found by their argument's type


def declared_at(file):
    """Names and lines; of a header, what it defines for all."""
    anonymous = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line == "namespace {":
            anonymous = True
        elif line.startswith("}  // namespace"):
            anonymous = False
        elif (anonymous or line.startswith("inline ")) and (found := DECLARED.match(line)):
            yield found[1], number


@pytest.mark.parametrize("room", ["common", "rendezvous", "launcher", *TRAINER, "tests/common", "tests/rendezvous", "tests/launcher",
                                  *(f"tests/trainer/{concern}" for concern in TRAINER_TESTS)])
def test_files_that_are_compiled_together_declare_no_name_twice(room):
    """All builds but the debug preset's join files (unity builds), where a second function of that name would be an overload that may be
    called instead of the first. And a function that is there twice belongs in a header of its own."""
    places = collections.defaultdict(dict)
    modules = {"topology", "tls_openssl"}  # libraries of their own
    files = (ROOT / room).glob("*.[ch]pp") if room.startswith("trainer") else (ROOT / room).rglob("*.[ch]pp")
    for file in sorted(files):
        if modules.isdisjoint(part for part in file.parts):
            for name, line in declared_at(file):
                places[name].setdefault(file.relative_to(ROOT), line)
    assert places, "the pattern finds nothing any more"
    twice = {name: [f"{file}:{line}" for file, line in files.items()] for name, files in places.items() if len(files) > 1}
    assert {} == {name: files for name, files in twice.items() if name not in OVERLOADS}
