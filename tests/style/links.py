"""Checks that everything to which a text refers exists: the targets of links, and the files, decisions and tests that it
names.

When a file or a test is renamed, these rules find the texts that still contain the old name.
"""

import posixpath
import re
import typing

import texts

DECISIONS = "docs/internals/decisions/"
INDEX = DECISIONS + "README.md"
FAULTS = "tests/faults.md"
FIXES = "docs/internals/fixes.md"
TOPS = ("bench", "cmake", "cmd", "common", "configs", "docs", "examples", "launcher", "packaging", "python", "rendezvous", "sdk", "tests", "trainer")
SOURCE_TOPS = ("cmd", "common", "launcher", "rendezvous", "trainer", "bench", "cmake")
WHOLE_PROGRAM = "tests/whole_program/"

# Sources of other projects that our comments cite, and one header that the build generates.
FOREIGN = {"pbf_builder.hpp", "CPUGeneratorImpl.cpp", "alloc_cpu.cpp", "reducer.cpp", "probe.cpp", "ddprun_built_version.hpp"}


def check(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    missing = [page for page in (INDEX, FAULTS, FIXES) if page not in tree]
    for page in missing:
        yield texts.Violation("tests/style/links.py", 1, "a rule reads a page that does not exist", "write the new name of that page", page)
    if missing:
        return
    yield from _links(tree)
    yield from _cited_decisions(tree)
    yield from _records_in_index(tree)
    yield from _files_in_comments(tree)
    yield from _paths_in_pages(tree)
    yield from _tests_of_faults(tree)
    yield from _tests_of_fixes(tree)


def _line_of(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _without_code(page: str) -> str:
    return re.sub(r"^```.*?^```", lambda found: texts.blank(found[0]), page, flags=re.M | re.S)


def anchors(page: str) -> set[str]:
    """Returns the anchors of the headings of a page, in the form that common Markdown viewers create."""
    headings = re.findall(r"^#+ +(.*)$", _without_code(page), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()).replace(" ", "-") for heading in headings}


def _folders(tree: texts.Tree) -> set[str]:
    folders = {posixpath.dirname(path) for path in tree.files}
    return folders | {folder[: at.start()] for folder in folders for at in re.finditer("/", folder)}


def _links(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    folders = _folders(tree)
    for path in tree.files:
        if not path.endswith(".md"):
            continue
        page = _without_code(tree.read(path))
        for found in re.finditer(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", page):
            target, anchor = found[1], found[2]
            if "://" in target or target.startswith("mailto:"):
                continue
            there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target)) if target else path
            line = _line_of(page, found.start())
            if there not in tree and there not in folders and there != ".":
                yield texts.Violation(path, line, "a link to a file that does not exist", "write an existing file", target)
            elif anchor and anchor not in anchors(tree.read(there)):
                yield texts.Violation(path, line, "a link to a heading that does not exist", f"write a heading of {there}", f"{target}#{anchor}")


def _cited_decisions(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    table = tree.read(INDEX).partition("## Settled questions")[2]
    numbers = set(re.findall(r"^\| *(\d+)", table, re.M))
    for path in tree.below("common", "rendezvous", "launcher", "trainer", "cmd", "tests", ends=(".cpp", ".hpp")):
        text = tree.read(path)
        for found in re.finditer(r"\bdecision (\d+)", text):
            if found[1] not in numbers:
                yield texts.Violation(path, _line_of(text, found.start()), "a decision that does not exist", f"write a number of {INDEX}", found[0])


def _records_in_index(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    for path in tree.below(DECISIONS.rstrip("/"), ends=(".md",)):
        record = path.removeprefix(DECISIONS)
        if path != INDEX and not record.endswith("README.md") and f"]({record})" not in tree.read(INDEX):
            yield texts.Violation(path, 1, "a decision without a line in the index", f"write a link to it in {INDEX}", record)


def _files_in_comments(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    paths = [path for top in (*SOURCE_TOPS, "tests") for path in tree.below(top)]
    names = {posixpath.basename(path) for path in paths}
    for path in tree.below(*SOURCE_TOPS, ends=(".cpp", ".hpp")):
        top = path.partition("/")[0] + "/"
        for number, line in enumerate(tree.read(path).splitlines(), 1):
            if "pp" not in line or "#include" in line:
                continue
            for name in re.findall(r"([\w/.-]*\w\.[ch]pp)\b", line):
                base = posixpath.basename(name)
                if base in FOREIGN or name in tree:
                    continue
                # If the name contains a folder, it must be a path from the root, or the end of a path in the same top folder.
                # If it is only a file name, the file may be in any folder.
                if not any(other.startswith(top) and other.endswith("/" + name) for other in paths) if "/" in name else base not in names:
                    yield texts.Violation(path, number, "a file that does not exist", "write the name of an existing file", name)


def _paths_in_pages(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    """Checks that paths in the inline code of pages exist. FIXES is skipped, because its paths omit `tests/`."""
    folders = _folders(tree)
    expression = re.compile(rf"`((?:{'|'.join(TOPS)})/[\w./-]+)`")
    for path in tree.files:
        if not path.endswith(".md") or path == FIXES:
            continue
        page = tree.read(path)
        for found in expression.finditer(page):
            name = found[1].rstrip("/")
            if name not in tree and name not in folders:
                yield texts.Violation(path, _line_of(page, found.start()), "a path that does not exist", "write an existing path", name)


def _tests_of_faults(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    page = tree.read(FAULTS)
    functions = "\n".join(tree.read(path) for path in tree.below(WHOLE_PROGRAM.rstrip("/"), ends=(".py",)) if "/test_" in path)
    for number, line in enumerate(page.splitlines(), 1):
        for name in re.findall(r"[\w/]+\.(?:py|cpp)\b", line):
            if "tests/" + name not in tree and WHOLE_PROGRAM + name not in tree:
                yield texts.Violation(FAULTS, number, "a test file that does not exist", "write an existing file in tests/", name)
        for name in re.findall(r"`(\w+)\.*`", line):
            if name not in functions:
                yield texts.Violation(FAULTS, number, "a test that does not exist", "write a part of an existing test's name", name)


def _tests_of_fixes(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    page = tree.read(FIXES)
    for found in re.finditer(r"`([\w/]+\.(?:py|cpp))`:\s+`([\w.]+)`", page):
        file, name = found[1], found[2]
        there = next((path for path in (WHOLE_PROGRAM + file, "tests/" + file) if path in tree), None)
        line = _line_of(page, found.start())
        if there is None:
            yield texts.Violation(FIXES, line, "a test file that does not exist", "write an existing file in tests/", file)
            continue
        definition = rf"def {name}\b" if file.endswith(".py") else r"TEST\w*\(" + name.replace(".", r",\s*") + r"\)"
        if not re.search(definition, tree.read(there)):
            yield texts.Violation(FIXES, line, f"a test that does not exist in {there}", "write an existing test", name)
