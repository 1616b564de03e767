"""The docs are in plain English: short sentences, without the words that docs/internals/glossary.md lists as not used. Comments of cmd, common,
launcher and rendezvous avoid these words as well.

A sentence ends at . ! ? or : (not at ;). A heading, a list item and a cell of a table are sentences of their own. Code blocks, targets of links and
HTML comments do not count; a piece of inline code counts as one word."""

import pathlib
import re
import typing

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GENERATED = {"rooms.md"}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")), *(p for p in sorted((ROOT / "docs" / "internals").glob("*.md")) if p.name not in GENERATED)]
GLOSSARY = ROOT / "docs" / "internals" / "glossary.md"
MOST_WORDS = 25

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))


class Sentence(typing.NamedTuple):
    line: int
    words: int
    text: str


def blocks(text: str) -> list[tuple[int, str]]:
    """Paragraphs, headings, list items and table cells, each with the number of its first line. Code is left out."""
    found: list[tuple[int, str]] = []
    open_block = False  # the next line of text continues the last block
    fenced = blank_before = False
    in_list = False
    for number, line in enumerate(re.sub(r"<!--.*?-->", lambda c: "\n" * c.group().count("\n"), text, flags=re.S).split("\n"), start=1):
        bare = line.strip()
        item = re.match(r"\s*(?:[-*+]|\d+\.)\s+", line)
        if bare.startswith("```"):
            fenced, open_block = not fenced, False
        elif fenced:
            continue
        elif not bare:
            open_block, blank_before = False, True
            continue
        elif line.startswith("    ") and not open_block and not in_list and not item:
            continue  # indented code
        elif bare.startswith("|"):
            in_list = open_block = False
            if not re.fullmatch(r"[|:\s-]+", bare):
                code = re.sub(r"(`+).*?\1", lambda c: c.group().replace("|", " "), bare)
                found += [(number, cell.strip()) for cell in re.split(r"(?<!\\)\|", code) if cell.strip()]
        elif bare.startswith("#"):
            found.append((number, bare.lstrip("# ")))
            in_list = open_block = False
        elif item:
            found.append((number, line[item.end() :]))
            in_list = open_block = True
        elif open_block:
            found[-1] = (found[-1][0], found[-1][1] + "\n" + line)
        else:
            in_list = in_list and blank_before and line.startswith(" ")
            found.append((number, line))
            open_block = True
        blank_before = False
    return found


def prose(text: str) -> str:
    """The text that a reader sees: without images, link targets and tags, and with `X` for each piece of inline code."""
    text = re.sub(r"(`+).*?\1", lambda c: "X" + "\n" * c.group().count("\n"), text, flags=re.S)
    text = re.sub(r"!\[[^\]]*\]\([^)]*\)", lambda c: "\n" * c.group().count("\n"), text)
    text = re.sub(r"\]\([^)]*\)", lambda c: "]" + "\n" * c.group().count("\n"), text)
    return re.sub(r"</?[a-z][^>]*>|[\[\]]", "", text)


def sentences(text: str) -> list[Sentence]:
    found = []
    for first, block in blocks(text):
        line, start = first, 0
        read = prose(block)
        for end in [*(m.end() for m in re.finditer(r"[.!?:][\"'”)*_]*\s+", read)), len(read)]:
            piece = read[start:end]
            words = [word for word in piece.split() if re.search(r"\w", word)]
            if words:
                found.append(Sentence(line, len(words), " ".join(piece.split())))
            line, start = line + piece.count("\n"), end
    return found


def not_used() -> dict[str, str]:
    """The words of the glossary's last table, which the docs must not use, each with its replacement."""
    table = GLOSSARY.read_text(encoding="utf-8").split("## Words that we do not use", 1)[1]
    rows = re.findall(r"^\| ([^|]+?) \| ([^|]+?) \|$", table, re.M)[1:]
    return {word.strip(): instead for words, instead in rows if not words.startswith("--") for word in words.split(",")}


def test_the_sentences_are_found():
    text = """# A heading

One sentence of `five words here` only.
Another: a part; and more

    code that is indented

- an item [with a link](to/a/place.md) in it
  that continues. **Bold one.** And

| a cell | `a|b` |
|---|---|

```sh
a fenced command
```
"""
    assert [(s.line, s.words) for s in sentences(text)] == [(1, 2), (3, 5), (4, 1), (4, 4), (8, 9), (9, 2), (9, 1), (11, 2), (11, 1)]


@each_page
def test_sentences_are_short(page):
    long = [s for s in sentences(page.read_text(encoding="utf-8")) if s.words > MOST_WORDS]
    shown = "\n".join(f"{page.relative_to(ROOT)}:{s.line}: {s.words} words, at most {MOST_WORDS}: {s.text}" for s in long)
    assert not long, f"Say it in shorter sentences:\n{shown}"


def test_the_glossary_has_a_list_of_words():
    words = not_used()
    assert len(words) >= 5 and "go on" in words, words


@each_page
def test_words_are_those_of_the_glossary(page):
    if page == GLOSSARY:
        pytest.skip("it names them")
    words = not_used()
    shown = []
    for sentence in sentences(page.read_text(encoding="utf-8")):
        for word, instead in words.items():
            if re.search(rf"\b{re.escape(word)}\b", sentence.text, re.I):
                shown.append(f"{page.relative_to(ROOT)}:{sentence.line}: say {instead!r} instead of {word!r}: {sentence.text}")
    assert not shown, "\n".join(shown)


# Files whose comments must follow the glossary. Code in a comment, such as `anew`, does not count.
COMMENTED = [file for room in ("cmd", "common", "launcher", "rendezvous") for file in sorted((ROOT / room).rglob("*.[ch]pp"))]


def comment_blocks(text: str) -> list[tuple[int, str]]:
    """Comments of a C++ file, each with the number of its first line: lines that follow each other are one comment."""
    found: list[tuple[int, str]] = []
    last = 0
    for number, line in enumerate(text.split("\n"), start=1):
        own = re.match(r"\s*//(.*)", line)
        if own and last == number - 1 and found:
            found[-1] = (found[-1][0], found[-1][1] + " " + own[1].strip())
        elif own or (own := re.search(r"(?:^|\s)// (.*)$", re.sub(r'"(?:[^"\\]|\\.)*"', '""', line))):
            found.append((number, own[1].strip()))
        if own and line.lstrip().startswith("//"):
            last = number
    return found


def test_comments_are_found():
    text = """// One comment of
// two lines.
int a = 1;  // behind code
const char* b = "no // comment";
    // another
"""
    assert comment_blocks(text) == [(1, "One comment of two lines."), (3, "behind code"), (5, "another")]


def test_comments_use_the_words_of_the_glossary():
    words = not_used()
    shown = []
    for file in COMMENTED:
        for line, comment in comment_blocks(file.read_text(encoding="utf-8")):
            for word, instead in words.items():
                if re.search(rf"\b{re.escape(word)}\b", re.sub(r"`[^`]*`", "", comment), re.I):
                    shown.append(f"{file.relative_to(ROOT)}:{line}: say {instead!r} instead of {word!r}: {comment[:160]}")
    assert not shown, "\n".join(shown)
