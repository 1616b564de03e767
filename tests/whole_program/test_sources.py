"""Rules for the sources that no compiler checks."""

import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Unindented declarations inside an anonymous namespace: functions, constants, classes. Aliases may be repeated.
DECLARED = re.compile(r"(?! |using|namespace|return|template|TEST|INSTANTIATE|public|private)(?:\[\[\w+\]\] )?(?:[\w:<>,&* ]+?[ &*])(\w+)(?: final)?(?:\(|\{| =|;| : | \{)")
# Every folder of ours with sources. The test folders of one program are compiled together, so they are checked together.
ROOMS = sorted({str(file.parent.relative_to(ROOT)) for top in ("cmd", "common", "launcher", "rendezvous", "trainer")
                for file in (ROOT / top).rglob("*.[ch]pp")})
TESTS = ["tests/common", "tests/rendezvous", "tests/launcher",
         *sorted(f"tests/trainer/{folder.name}" for folder in (ROOT / "tests" / "trainer").iterdir() if folder.is_dir())]
OVERLOADS = {"to_json", "from_json"}  # overloads that differ in their argument's type


def declared_at(file):
    """Names and lines of the declarations; of a header, its definitions for all includers."""
    anonymous = False
    for number, line in enumerate(file.read_text().splitlines(), 1):
        if line == "namespace {":
            anonymous = True
        elif line.startswith("}  // namespace"):
            anonymous = False
        elif (anonymous or line.startswith("inline ")) and (found := DECLARED.match(line)):
            yield found[1], number


@pytest.mark.parametrize("room", [*ROOMS, *TESTS])
def test_files_that_are_compiled_together_declare_no_name_twice(room):
    """All builds except the debug preset's join files (unity builds). There, a second function of that name would be an overload, which may be called
    instead of the first. A function that exists twice belongs in a header."""
    places = collections.defaultdict(dict)
    files = (ROOT / room).rglob("*.[ch]pp") if room.startswith("tests/") else (ROOT / room).glob("*.[ch]pp")
    for file in sorted(files):
        for name, line in declared_at(file):
            places[name].setdefault(file.relative_to(ROOT), line)
    twice = {name: [f"{file}:{line}" for file, line in files.items()] for name, files in places.items() if len(files) > 1}
    assert {} == {name: files for name, files in twice.items() if name not in OVERLOADS}


def test_the_pattern_of_declarations_finds_some():
    assert sum(1 for room in ROOMS for file in (ROOT / room).glob("*.cpp") for _ in declared_at(file)) > 500


def counted_lines(file):
    """The number of lines that are neither empty nor only a comment."""
    return sum(1 for line in file.read_text().splitlines() if line.strip() and not line.strip().startswith("//"))


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_at_most_25_files_of_its_own(room):
    assert len([file for file in (ROOT / room).iterdir() if file.is_file()]) <= 25


@pytest.mark.parametrize("room", ROOMS)
def test_a_file_above_400_counted_lines_says_why(room):
    for file in sorted((ROOT / room).glob("*.[ch]pp")):
        if counted_lines(file) > 400:
            assert "Note [Why this file is long]" in file.read_text(), f"{file.relative_to(ROOT)} has {counted_lines(file)} counted lines"


@pytest.mark.parametrize("room", ROOMS)
def test_a_class_is_defined_in_one_file(room):
    """A class must not be split to shorten a file: a part that deserves its own file deserves its own name and state."""
    places = collections.defaultdict(set)
    for file in (ROOT / room).glob("*.cpp"):
        for name in re.findall(r"^(?! )(?:[\w:<>,&*]+[ &*]+)?(\w+)::~?\w+\(.*(?:\{|:|const)$", file.read_text(), re.M):
            places[name].add(file.name)
    assert {} == {name: sorted(files) for name, files in places.items() if len(files) > 1}


# The protocol between nodes and the one between an agent and its workers each have a message or an error of this name. Their namespaces distinguish
# them.
OF_TWO_PROTOCOLS = {"Hello", "ProtocolError", "StopAt", "StopReady"}


def types_in(header):
    """Unindented types and aliases of a header, without those in namespaces of events and actions, which are always used with the namespace."""
    namespaces = []
    for line in header.read_text().splitlines():
        if opened := re.match(r"namespace ([\w:]+) \{", line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace"):
            namespaces.pop()
        elif found := re.match(r"(?:struct|class|enum class) (\w+)(?: final)?(?: : [^;{]*)? ?\{|using (\w+) =", line):
            if not namespaces[-1].endswith(("_event", "_action")):
                yield found[1] or found[2]


def test_a_name_means_one_type():
    places = collections.defaultdict(set)
    for room in ("common", "rendezvous", "launcher"):
        for header in (ROOT / room).rglob("*.hpp"):
            for name in types_in(header):
                places[name].add(str(header.relative_to(ROOT)))
    assert len(places) > 300
    assert {} == {name: sorted(headers) for name, headers in places.items() if len(headers) > 1 and name not in OF_TWO_PROTOCOLS}
