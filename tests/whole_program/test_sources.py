"""Rules of the sources that no compiler checks."""

import collections
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What is declared at the margin inside an anonymous namespace: a function, a constant, a class. Aliases may be repeated.
DECLARED = re.compile(r"(?! |using|namespace|return|template|TEST|INSTANTIATE|public|private)(?:\[\[\w+\]\] )?(?:[\w:<>,&* ]+?[ &*])(\w+)(?: final)?(?:\(|\{| =|;| : | \{)")
# Every folder of ours that has sources. A test's folder is joined with the others of its program, so those are looked at together.
ROOMS = sorted({str(file.parent.relative_to(ROOT)) for top in ("cmd", "common", "launcher", "rendezvous", "trainer")
                for file in (ROOT / top).rglob("*.[ch]pp")})
TESTS = ["tests/common", "tests/rendezvous", "tests/launcher",
         *sorted(f"tests/trainer/{folder.name}" for folder in (ROOT / "tests" / "trainer").iterdir() if folder.is_dir())]
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


@pytest.mark.parametrize("room", [*ROOMS, *TESTS])
def test_files_that_are_compiled_together_declare_no_name_twice(room):
    """All builds but the debug preset's join files (unity builds), where a second function of that name would be an overload that may be
    called instead of the first. And a function that is there twice belongs in a header of its own."""
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
    """Lines that are neither empty nor only a comment."""
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
    """Not cut for the number of lines: a part that is worth a file of its own is worth a name and a state of its own."""
    places = collections.defaultdict(set)
    for file in (ROOT / room).glob("*.cpp"):
        for name in re.findall(r"^(?! )(?:[\w:<>,&*]+[ &*]+)?(\w+)::~?\w+\(.*(?:\{|:|const)$", file.read_text(), re.M):
            places[name].add(file.name)
    assert {} == {name: sorted(files) for name, files in places.items() if len(files) > 1}


# Each of the two protocols, between nodes and between an agent and its workers, has a message or an error of this name: their namespaces tell them apart.
OF_TWO_PROTOCOLS = {"Hello", "ProtocolError", "StopAt", "StopReady"}


def types_in(header):
    """Types and aliases at the margin of a header, without those of namespaces of events and actions, which are always named with them."""
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
