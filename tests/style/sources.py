"""Checks rules for C++ sources that no compiler checks.

Files that are compiled together must not declare a name twice. All builds except the debug preset join files (unity builds).
In a joined file, a second function of the same name would be an overload, which might be called instead of the first function.
A function that two files need belongs in a header.

A module is a folder with sources, and modules may be nested. A module has at most 25 files. A file of more than 400 lines of
code needs a Note that gives the reason. Do not split a class only to shorten its file: a new file needs a concept that has a
name and separate state. In all code that the launcher links, a name denotes only one type.
"""

import collections
import re
import typing

import texts

TOPS = ("cmd", "common", "launcher", "rendezvous", "trainer")
ENDS = (".cpp", ".hpp")
MAX_FILES = 25
MAX_LINES = 400
LONG_FILE_NOTE = "Note [Why this file is long]"

# Matches unindented declarations in an anonymous namespace: functions, constants and classes. Aliases are not matched, because two files
# may declare the same alias.
_DECLARED = re.compile(
    r"(?! |using|namespace|return|template|TEST|INSTANTIATE|public|private)(?:\[\[\w+\]\] )?"
    r"(?:[\w:<>,&* ]+?[ &*])(\w+)(?: final)?(?:\(|\{| =|;| : | \{)"
)
# Names that several files may declare, because the overloads differ in the type of their argument.
OVERLOADS = {"to_json", "from_json"}

# Two protocols use each of these names for a message or an error: the protocol between nodes, and the protocol between an
# agent and its workers. Namespaces distinguish the two types.
OF_TWO_PROTOCOLS = {"Hello", "ProtocolError", "StopAt", "StopReady"}


def check(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    modules = _by_folder(tree.below(*TOPS, ends=ENDS))
    for folder, files in modules.items():
        yield from _declared_twice(tree, files)
        yield from _too_many_files(tree, folder)
        yield from _split_classes(tree, files)
        for path in files:
            yield from _too_long(tree, path)
    for files in _test_programs(tree).values():
        yield from _declared_twice(tree, files)
    yield from _types_declared_twice(tree)


def _by_folder(files: list[str]) -> dict[str, list[str]]:
    folders = collections.defaultdict(list)
    for path in files:
        folders[path.rpartition("/")[0]].append(path)
    return folders


def _test_programs(tree: texts.Tree) -> dict[str, list[str]]:
    """Returns the sources of each test program. Each folder of tests/trainer is one program. Each of tests/common,
    tests/rendezvous and tests/launcher is one program too."""
    programs = collections.defaultdict(list)
    for path in tree.below("tests/common", "tests/rendezvous", "tests/launcher", "tests/trainer", ends=ENDS):
        depth = 3 if path.startswith("tests/trainer/") else 2
        programs["/".join(path.split("/")[:depth])].append(path)
    return programs


def declarations(text: str) -> typing.Iterator[tuple[str, int]]:
    """Yields the names and lines of the declarations in anonymous namespaces, and of the inline definitions of a header."""
    anonymous = False
    for number, line in enumerate(text.splitlines(), 1):
        if line == "namespace {":
            anonymous = True
        elif line.startswith("}  // namespace"):
            anonymous = False
        elif (anonymous or line.startswith("inline ")) and (found := _DECLARED.match(line)):
            yield found[1], number


def _declared_twice(tree: texts.Tree, files: list[str]) -> typing.Iterator[texts.Violation]:
    first: dict[str, tuple[str, int]] = {}
    for path in files:
        for name, line in declarations(tree.read(path)):
            there, its_line = first.setdefault(name, (path, line))
            if there != path and name not in OVERLOADS:
                yield texts.Violation(path, line, f"{there}:{its_line} declares the same name, and is compiled together with this file",
                                      "write another name, or one definition in a header", name)


def _too_many_files(tree: texts.Tree, folder: str) -> typing.Iterator[texts.Violation]:
    files = [path for path in tree.below(folder) if path.count("/") == folder.count("/") + 1]
    if len(files) > MAX_FILES:
        yield texts.Violation(files[MAX_FILES], 1, f"a module of {len(files)} files", f"write modules of at most {MAX_FILES} files", folder)


def counted_lines(text: str) -> int:
    """Returns the number of lines of code: lines that are not empty and contain more than a `//` comment."""
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


def _too_long(tree: texts.Tree, path: str) -> typing.Iterator[texts.Violation]:
    text = tree.read(path)
    lines = counted_lines(text)
    if lines > MAX_LINES and LONG_FILE_NOTE not in text:
        yield texts.Violation(path, 1, f"a file of {lines} lines of code, at most {MAX_LINES}", "write two files, or the reason in a comment",
                              LONG_FILE_NOTE)


_METHOD = re.compile(r"^(?! )(?:[\w:<>,&*]+[ &*]+)?(\w+)::~?\w+\(.*(?:\{|:|const)$", re.M)


def _split_classes(tree: texts.Tree, files: list[str]) -> typing.Iterator[texts.Violation]:
    first: dict[str, str] = {}
    for path in files:
        if not path.endswith(".cpp"):
            continue
        reported = set()
        for found in _METHOD.finditer(tree.read(path)):
            name = found[1]
            there = first.setdefault(name, path)
            if there != path and name not in reported:
                reported.add(name)
                yield texts.Violation(path, tree.read(path).count("\n", 0, found.start()) + 1, f"{there} defines methods of this class too",
                                      "write a class in one file, and a separate class for each part", name)


def types_in(text: str) -> typing.Iterator[tuple[str, int]]:
    """Yields the unindented types and aliases of a header. Types in namespaces of events and actions are skipped, because code
    always qualifies them."""
    namespaces = [""]
    for number, line in enumerate(text.splitlines(), 1):
        if opened := re.match(r"namespace ([\w:]+) \{", line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace") and len(namespaces) > 1:
            namespaces.pop()
        elif found := re.match(r"(?:struct|class|enum class) (\w+)(?: final)?(?: : [^;{]*)? ?\{|using (\w+) =", line):
            if not namespaces[-1].endswith(("_event", "_action")):
                yield found[1] or found[2], number


def _types_declared_twice(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    first: dict[str, tuple[str, int]] = {}
    for path in tree.below("common", "rendezvous", "launcher", ends=(".hpp",)):
        for name, line in types_in(tree.read(path)):
            there, its_line = first.setdefault(name, (path, line))
            if there != path and name not in OF_TWO_PROTOCOLS:
                yield texts.Violation(path, line, f"{there}:{its_line} declares another type of this name",
                                      "write a name that states the difference", name)
