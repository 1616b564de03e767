#!/usr/bin/env python3
"""Checks the style rules that no compiler and no formatter checks. `./dev format --check` runs this program.

Each kind of rule has a file: prose.py (length of sentences), vocabulary.py (words), sources.py (C++ sources) and links.py
(links, and names of files and tests in texts). texts.py splits files into texts for all these rules. The program needs only
the standard library of Python.

A violation is one line: FILE:LINE: what is wrong: what to write instead: the text. The exit code is 1 if there is a violation.
"""

import argparse
import collections
import pathlib
import sys

import links
import prose
import sources
import texts
import vocabulary

ROOT = pathlib.Path(__file__).resolve().parents[2]


def violations(tree: texts.Tree, only: frozenset[str] | None = None) -> list[texts.Violation]:
    """Returns all violations, or only the violations in the files `only`. Rules that compare files read the whole tree in both
    cases."""
    found = [*prose.check(tree), *vocabulary.check(tree, only), *sources.check(tree), *links.check(tree)]
    return sorted(each for each in found if only is None or each.path in only)


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks the style rules of docs/internals/style.md.")
    parser.add_argument("paths", nargs="*", metavar="PATH", type=pathlib.Path, help="check only these files and folders (default: all files)")
    parser.add_argument("--report", action="store_true", help="print all violations, with a count for each rule, and succeed")
    parser.add_argument("--root", type=pathlib.Path, default=ROOT, metavar="FOLDER", help="check this repository instead of ddprun's")
    arguments = parser.parse_args()

    root = arguments.root.resolve()
    tree = texts.Tree(root)
    only = None
    if arguments.paths:
        given = [path.resolve() for path in arguments.paths]
        for path, resolved in zip(arguments.paths, given):
            if not resolved.exists() or not resolved.is_relative_to(root):
                parser.error(f"{path} does not exist in {root}: name files or folders of that repository")
        only = frozenset(file for file in tree.files if any((root / file).is_relative_to(path) for path in given))

    try:
        found = violations(tree, only)
    except ValueError as error:  # raised if a table of the style page has a mistake
        parser.error(str(error))
    for each in found:
        print(each)
    if arguments.report:
        counts = collections.Counter(each.what for each in found)
        for what, count in counts.most_common():
            print(f"{count:6} {what}")
    print(f"style violations: {len(found)}; checked files: {len(tree.files) if only is None else len(only)}")
    return 1 if found and not arguments.report else 0


if __name__ == "__main__":
    sys.exit(main())
