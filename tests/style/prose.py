"""Checks that sentences of the docs have at most 25 words.

A sentence ends at . ! ? or : (not at ;). A heading, a list item and a table cell are separate sentences. The words in code
blocks, link targets and HTML comments are not counted. Inline code between two backticks counts as one word.
"""

import re
import typing

import texts

MAX_WORDS = 25
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")  # checked in addition to all pages of docs/


class Sentence(typing.NamedTuple):
    line: int
    words: int
    text: str


def sentences(page: str) -> list[Sentence]:
    found = []
    for line, block in texts.blocks(page):
        start = 0
        read = texts.visible_text(block)
        for end in [*(m.end() for m in re.finditer(r"[.!?:][\"'”)*_]*\s+", read)), len(read)]:
            piece = read[start:end]
            words = sum(1 for word in piece.split() if re.search(r"\w", word))
            if words:
                found.append(Sentence(line, words, " ".join(piece.split())))
            line, start = line + piece.count("\n"), end
    return found


def check(tree: texts.Tree) -> typing.Iterator[texts.Violation]:
    for path in tree.files:
        if path in PAGES or path.startswith("docs/") and path.endswith(".md"):
            page = tree.read(path)
            if texts.is_generated(page):
                continue
            for sentence in sentences(page):
                if sentence.words > MAX_WORDS:
                    yield texts.Violation(path, sentence.line, f"a sentence of {sentence.words} words",
                                          f"write sentences of at most {MAX_WORDS}", sentence.text)
