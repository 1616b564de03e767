#!/usr/bin/env python3
"""Counts the lines of code and of comments in each top folder: `./dev lines`, or `lines.py [FOLDER...]` for some folders.

A line that contains code is a line of code, even if a comment follows. A line that contains only a comment or a part of a
docstring is a comment line. Blank lines are not counted, even within comments. The share is the percentage of comment lines
among all counted lines. Only C, C++ and Python files are counted. For C++, texts.py finds the comments, so `//` in a literal
is not a comment. For Python, the parser finds the docstrings.
"""

import argparse
import pathlib
import sys
import typing

import texts

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ("launcher", "rendezvous", "trainer", "common", "cmd", "python", "sdk")


class Count(typing.NamedTuple):
    files: int = 0
    code: int = 0
    comments: int = 0

    def plus(self, other: "Count") -> "Count":
        return Count(*(a + b for a, b in zip(self, other)))

    @property
    def share(self) -> float:
        return 100 * self.comments / max(1, self.code + self.comments)


def count(text: str, language: str) -> Count:
    code, at = [], 0
    for span in texts.spans(text, language):
        code.append(text[at : span.start])
        is_comment = span.kind in ("comment", "docstring")
        # A blank line within a multi-line literal counts as blank, too.
        code.append(texts.blank(text[span.start : span.end]) if is_comment else text[span.start : span.end])
        at = span.end
    code.append(text[at:])
    lines_of_code = sum(1 for line in "".join(code).split("\n") if line.strip())
    written = sum(1 for line in text.split("\n") if line.strip())
    return Count(1, lines_of_code, written - lines_of_code)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev lines", description="Counts lines of code and of comments in C, C++ and Python files.")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", default=FOLDERS, help=f"folders from the root (default: {' '.join(FOLDERS)})")
    folders = [folder.strip("/") for folder in parser.parse_args().folders]
    tree = texts.Tree(ROOT)
    rows = []
    for folder in folders:
        total = Count()
        for path in tree.below(folder):
            language = texts.language_of(path)
            if language in ("cpp", "python"):
                total = total.plus(count(tree.read(path), language))
        if total.files == 0:
            parser.error(f"{folder} has no C, C++ or Python files: name folders from the root of the repository, such as launcher/agent")
        rows.append((folder, total))
    whole = Count()
    for _, total in rows:
        whole = whole.plus(total)
    width = max(len("folder"), *(len(folder) for folder in folders))
    print(f"{'folder':<{width}} {'files':>6} {'code':>8} {'comments':>9} {'share':>7}")
    for folder, total in [*rows, ("all", whole)]:
        print(f"{folder:<{width}} {total.files:6} {total.code:8} {total.comments:9} {total.share:5.1f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
