"""Refuses the words that docs/internals/style.md lists, in docs, comments, messages and names.

A project tends to invent words, and newcomers cannot understand texts that use them. A list of words in a style guide does not
prevent that, because a first draft never follows the list. Therefore the list is a table, and this file applies the table to
every text.

There are four kinds of texts. The third column of a table lists the kinds to which a row applies.

  docs      all Markdown pages and the descriptions of docs/schemas, without inline code and code blocks
  comments  comments and Python docstrings, without code between backticks
  messages  string literals; in shell files, all code
  names     identifiers and names of files, split at `_`, `-` and capitals: both `goesOn` and `goes_on` contain "go on"

The first table lists words. The second table lists constructions; CONSTRUCTIONS below has a regular expression for each of
them. A name is reported only once, with the first place where it occurs and the number of these places.

Some words must stay, because users write them or programs read them. ALLOWED_NAMES, ALLOWED_PHRASES and MACHINE_READABLE list
these words, each with a reason.
"""

import collections
import re
import typing

import texts

GLOSSARY = "docs/internals/glossary.md"
MAX_GLOSSARY = 25
KINDS = ("docs", "comments", "messages", "names")
PAGE = "docs/internals/style.md"
WORDS_HEADING = "### Words that we do not use"
CONSTRUCTIONS_HEADING = "### Constructions that we do not use"

# Files that are not checked, because they list or test the forbidden words.
THIS = "tests/style/vocabulary.py"
ABOUT_WORDS = {PAGE: "the tables", THIS: "the expressions", "tests/whole_program/test_style.py": "a text for each rule"}

# The descriptions in the files of this folder are checked as docs.
SCHEMAS = "docs/schemas/"

# Texts that we do not edit: data of fuzzers, and files that earlier versions of ddprun wrote.
NOT_OURS = ("tests/fuzz/corpus/", "tests/whole_program/earlier/")

# After these words, "who" is allowed, because they denote persons. "who" is not allowed for a rank, a node or a process.
_PERSONS = r"(?i:users?|people|person|those|anyone|readers?|authors?|operators?|administrators?|contributors?|developers?|maintainers?|newcomers?|attackers?)"

# The regular expression for each row of the second table. If an expression has a group, only a match of that group is a
# violation. Its other alternatives match phrases that are allowed.
CONSTRUCTIONS = {
    'a comment that begins with "Of"': r"\AOf (?:two|three|four|several|these|those|[\d,]+) |\A\W*([Oo]f)\b(?! course)",
    'a message or paragraph that begins with "Of"': r"\AOf (?:two|three|four|several|these|those|[\d,]+) |\A(Of)\b(?! course)",
    '"is no X"': r"\b[Tt]here (?:is|are|was|were) no\b|\b((?:is|are|was|were) no)\b(?! (?:longer|more|less|other|\w+er than)\b)",
    '"there is no such X"': r"\b[Tt]here (?:is|are|was|were) no such\b",
    '"nothing:" or "empty:" before the meaning': r"(?:\A|[.;,(]\s+)\W*((?:nothing|empty):)\s",
    'a sentence that begins with "What" or "Who"': r"(?:\A|[.!?:]\s+)((?:What|Who)\b)(?=[^?:]*?[.!](?:\s|\Z))",
    '"who" for a process, a rank or a node': rf"\b{_PERSONS},?\s+who\b|\bfrom\s+whom\b|\b(who|whom)\b",
    "look": r"(?i)\blook(?:s|ed|ing)? (?:up|ahead|behind|like)\b|\b(look(?:s|ed|ing)?)\b",
    "`kMost...`, `MOST_...`": r"\A(k Most|MOST)\b",
}

ALLOWED_PHRASES = {
    r"head\s?room": "the field's word for spare memory or time",
    r"e-?mail": "the field's word",
    r"BEGIN \{": "a keyword of awk",
    r"<!-- begin -->": "a mark in docs/configuration.md",
    r"ask\s+an\s+administrator": "a person",
    r"\bpictures of (?=\d|\Z)": "a part of the fingerprints that runs have stored",
}

# Names that contain a refused word but cannot be renamed, because they are part of a public interface or of a file format.
# Names inside the program that correspond to such a name are allowed too.
ALLOWED_NAMES = {
    "ddprun_figure": "a function of sdk/include/ddprun_worker.h",
    "bytes_asked": "the field of a message",
    "figure": "a method of a Job in the SDK",
    "figures": "a method of a Task in the SDK, and the field of a message",
    "figures_step": "the field of a message",
    "Figures": "a type of the SDK",
    "wait_for_everyone": "a method of the package accelerate",
    "wait_for_room_s": "a key of train.json",
    "serve_forever": "a method of Python's HTTP servers",
    "FigureMode": "an earlier name in the SDK",
    "pictures_into_classes": "an earlier name in the SDK",
}

# Texts that programs read: complete string literals, and quoted words in a text.
MACHINE_READABLE = {
    "ask": "a key of a request, on a job's control socket and between nodes",
    "begin": "a key of a checkpoint's manifest",
    "begun": "a key of a request for log lines",
    "ddprun farewell": "the first bytes of a death notice",
    "figures": "a key of report.json, of events, of the worker channel and of an exported model",
    "heard": "a message of a spare interpreter",
    "picture-check": "a folder of a run directory",
}

_IGNORED = re.compile(
    r"`[^`]*`"  # code
    r"|https?://\S+"
    r"|(?<![\w-])--?[a-z][\w-]*"  # an option
    r"|\b[\w-]+(?:[./][\w-]+)+"  # a file, or a key such as optimizer.lr
    r"|\b[\w:]+\(\)"  # a function
    r"|\$\{?\w+"  # a variable of the shell
)


class Row(typing.NamedTuple):
    label: str  # a word or a construction
    instead: str
    kinds: frozenset[str]


def rows(page: str, heading: str) -> list[Row]:
    """Returns the rows of the table below `heading`. The table has the columns not, but and where."""
    found = []
    for line in page.partition(heading)[2].partition("\n#")[0].split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 3 and cells[0] != "not" and not cells[0].startswith("--"):
            where = cells[2].replace("everywhere", "docs, comments, messages, names").replace("text", "docs, comments, messages")
            kinds = frozenset(kind.strip() for kind in where.split(","))
            if not kinds <= set(KINDS):
                raise ValueError(f"{PAGE}: unknown kind of text in '{cells[2]}': write everywhere, text, or some of {', '.join(KINDS)}")
            found.append(Row(cells[0], cells[1], kinds))
    return found


class Vocabulary:
    """The two tables of the style page, combined into one regular expression for each kind of text."""

    def __init__(self, page: str):
        words = rows(page, WORDS_HEADING)
        constructions = rows(page, CONSTRUCTIONS_HEADING)
        unknown = {row.label for row in constructions} ^ set(CONSTRUCTIONS)
        if not words or unknown:
            raise ValueError(f"{PAGE}: the tables of words must have rows, and the second one those of CONSTRUCTIONS: {sorted(unknown)}")
        self._instead: dict[str, str] = {}
        self._words: dict[str, re.Pattern[str] | None] = {}
        self._constructions = {kind: [(row, re.compile(CONSTRUCTIONS[row.label])) for row in constructions if kind in row.kinds] for kind in KINDS}
        for kind in KINDS:
            forms = []
            for row in words:
                for form in (form.strip() for form in row.label.split(",")):
                    self._instead[form] = row.instead
                    if kind in row.kinds:
                        forms.append(re.escape(form).replace(r"\ ", r"\s+"))
            self._words[kind] = re.compile(rf"\b(?:{'|'.join(sorted(forms, key=len, reverse=True))})\b") if forms else None

    def hits(self, kind: str, text: str) -> typing.Iterator[tuple[int, str, str]]:
        """Yields the offset of each violation, the word or construction, and what to write instead."""
        if words := self._words[kind]:
            for found in words.finditer(text.lower()):
                word = " ".join(found[0].split())
                yield found.start(), f'"{word}"', self._instead[word]
        for row, expression in self._constructions[kind]:
            for found in expression.finditer(text):
                group = 1 if expression.groups else 0
                if found[group]:
                    yield found.start(group), row.label, row.instead


def words_of(name: str) -> str:
    """Splits a name into words: `kAtOnce` becomes "k At Once"."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name))


_PHRASES = re.compile("|".join(ALLOWED_PHRASES), re.I)
_QUOTED = re.compile("[\"'](?:" + ("|".join(map(re.escape, MACHINE_READABLE)) or "(?!)") + ")[\"']")


def _checked_part(text: str) -> str:
    for ignored in (_QUOTED, _IGNORED, _PHRASES):
        text = ignored.sub(lambda found: texts.blank(found[0]), text)
    return text


def _excerpt(text: str, at: int) -> str:
    return ("... " if at > 60 else "") + " ".join(text[max(0, at - 60) : at + 100].split())


_KIND = {"comment": "comments", "message": "messages"}


def _paragraphs(page: str) -> typing.Iterator[tuple[int, str]]:
    for line, block in texts.blocks(page):
        yield line, texts.visible_text(block)


def _descriptions(schema: str) -> typing.Iterator[tuple[int, str]]:
    for found in re.finditer(r'"description":\s*"((?:[^"\\]|\\.)*)"', schema):
        yield schema.count("\n", 0, found.start(1)) + 1, found[1]


class _Names:
    """Stores all distinct names in the checked files. For each name it stores the first place where it occurs, and the number
    of its places."""

    def __init__(self):
        self.places: dict[str, tuple[str, int]] = {}
        self._codes: dict[str, str] = {}

    def add_path(self, path: str) -> None:
        for part in path.split("/"):
            self._add(part.split(".")[0], path, 1)

    def add_code(self, path: str, code: str) -> None:
        self._codes[path] = code
        for name, count in collections.Counter(re.findall(r"[A-Za-z_]\w*", code)).items():
            self._add(name, path, count)

    def _add(self, name: str, path: str, count: int) -> None:
        first, before = self.places.get(name, (path, 0))
        self.places[name] = (first, before + count)

    def _line(self, name: str, path: str) -> int:
        found = re.search(rf"\b{name}\b", self._codes.get(path, ""))
        return self._codes[path].count("\n", 0, found.start()) + 1 if found else 1

    def check(self, vocabulary: Vocabulary) -> typing.Iterator[texts.Violation]:
        for name, (path, count) in self.places.items():
            if name not in ALLOWED_NAMES:
                for _, word, instead in vocabulary.hits("names", words_of(name)):
                    places = "one place" if count == 1 else f"{count} places"
                    yield _violation(path, self._line(name, path), "name", word, instead, f"{name} ({places})")


def check(tree: texts.Tree, only: frozenset[str] | None = None) -> typing.Iterator[texts.Violation]:
    """Yields the violations in the files `only`, or in all files if `only` is None."""
    vocabulary = Vocabulary(tree.read(PAGE))
    names = _Names()
    literals: set[str] = set()  # the entries of MACHINE_READABLE that were found
    for path in tree.files:
        if path.startswith(NOT_OURS) or path in ABOUT_WORDS or only is not None and path not in only:
            continue
        language = texts.language_of(path)
        if language:
            names.add_path(path)
            yield from _check_code(tree, path, language, vocabulary, names, literals)
        elif path.endswith(".md") or path.startswith(SCHEMAS) and path.endswith(".json"):
            names.add_path(path)
            yield from _check_page(tree, path, vocabulary)
    yield from names.check(vocabulary)
    if only is None:
        yield from _check_lists(tree, names, literals)


def _check_code(tree: texts.Tree, path: str, language: str, vocabulary: Vocabulary, names: _Names, literals: set[str]) -> typing.Iterator[texts.Violation]:
    found, code = texts.split(tree.read(path), language)
    if language != "shell":
        names.add_code(path, code)
    for text in found:
        if text.text.strip() in MACHINE_READABLE:
            literals.add(text.text.strip())
            continue
        for at, word, instead in vocabulary.hits(_KIND[text.kind], _checked_part(text.text)):
            yield _violation(path, text.line_at(at), text.kind, word, instead, _excerpt(text.text, at))


def _check_page(tree: texts.Tree, path: str, vocabulary: Vocabulary) -> typing.Iterator[texts.Violation]:
    page = tree.read(path)
    for line, read in _paragraphs(page) if path.endswith(".md") else _descriptions(page):
        for at, word, instead in vocabulary.hits("docs", _checked_part(read)):
            yield _violation(path, line + read.count("\n", 0, at), "docs", word, instead, _excerpt(read, at))


def _check_lists(tree: texts.Tree, names: _Names, literals: set[str]) -> typing.Iterator[texts.Violation]:
    if THIS in tree:
        for unused in sorted((ALLOWED_NAMES.keys() - names.places.keys()) | (MACHINE_READABLE.keys() - literals)):
            yield texts.Violation(THIS, 1, "an exception for a text that does not exist", "write no entry for it", unused)
    if GLOSSARY in tree:
        entries = sum(1 for line in tree.read(GLOSSARY).split("\n") if line.startswith("|")) - 2
        if entries > MAX_GLOSSARY:
            yield texts.Violation(GLOSSARY, 1, f"{entries} entries", f"write at most {MAX_GLOSSARY}, of words that the field does not have", "")


def _violation(path: str, line: int, kind: str, word: str, instead: str, text: str) -> texts.Violation:
    return texts.Violation(path, line, f"{kind}: {word}", f"write {instead}", text)
