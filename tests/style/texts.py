"""Splits files into texts: paragraphs of docs, comments, messages (string literals) and code.

All rules of tests/style and the line counter use this file. It uses regular expressions instead of parsers, so that it takes
only about 2 s for a tree of 8 MB. Python docstrings are the exception: only a parser can distinguish them from other string
literals.

A text stores the line of each of its parts. Therefore a rule can find a phrase that continues on the next line, and can report
the line where the phrase starts. Two consecutive lines with `//` are one comment, and two adjacent literals are one message.
"""

import ast
import bisect
import pathlib
import re
import subprocess
import typing

CPP = (".cpp", ".hpp", ".h", ".c", ".cu", ".cuh")


class Violation(typing.NamedTuple):
    path: str
    line: int
    what: str  # the mistake
    instead: str  # what to write instead
    text: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.what}: {self.instead}: {self.text}"


class Tree:
    """The files of a repository. Each path is relative to the root. Files that git ignores are not included."""

    def __init__(self, root: pathlib.Path):
        self.root = root
        self.files = sorted(self._listed())
        self._known = set(self.files)
        self._read: dict[str, str] = {}

    def _listed(self) -> list[str]:
        if not (self.root / ".git").exists():
            return [file.relative_to(self.root).as_posix() for file in self.root.rglob("*") if file.is_file()]
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(command, cwd=self.root, capture_output=True, check=True).stdout.decode().split("\0")
        return [name for name in set(names) if name and (self.root / name).is_file()]

    def __contains__(self, path: str) -> bool:
        return path in self._known

    def read(self, path: str) -> str:
        if path not in self._read:
            self._read[path] = (self.root / path).read_text(encoding="utf-8", errors="replace")
        return self._read[path]

    def below(self, *folders: str, ends: tuple[str, ...] = ("",)) -> list[str]:
        """Returns the files in these folders, at any depth, whose names end with one of `ends`."""
        tops = tuple(f"{folder}/" for folder in folders)
        return [path for path in self.files if path.startswith(tops) and path.endswith(ends)]


# ---- spans: the places of comments and literals in a file ---------------------------------------------------------------

# Each alternative matches one comment, or one literal with its body. re.Match.lastgroup is the group that closes last, so it is the name of
# the matched alternative. `\#` is # in a verbose expression.
_SPANS = {
    "cpp": re.compile(
        r"""  (?P<comment>  //[^\n]* | /\*.*?\*/ )
            | (?P<raw>      \bR"(?P<mark>[^\s()\\]{0,16})\( (?P<rawbody>.*?) \)(?P=mark)" )
            | (?P<literal>  "(?P<body>(?:[^"\\\n]|\\.)*)" )
            | (?P<character> (?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+' )""",
        re.S | re.X,
    ),
    "python": re.compile(
        r"""  (?P<comment>  \#[^\n]* )
            | (?P<raw>      (?P<rawprefix>\b[rRbBuUfF]{1,2})? (?P<mark>\"\"\"|''') (?P<rawbody>(?:[^\\]|\\.)*?) (?P=mark) )
            | (?P<literal>  (?P<prefix>\b[rRbBuUfF]{1,2})? (?P<quote>["']) (?P<body>(?:(?!(?P=quote))[^\\\n]|\\.)*) (?P=quote) )""",
        re.S | re.X,
    ),
    "cmake": re.compile(
        r"""  (?P<comment>  \#\[\[.*?\]\] | \#[^\n]* )
            | (?P<raw>      \[\[(?P<rawbody>.*?)\]\] )
            | (?P<literal>  "(?P<body>(?:[^"\\]|\\.)*)" )""",
        re.S | re.X,
    ),
    # A shell has too many kinds of quotes to find all string literals. Therefore the code of each line is treated as one
    # message, even in here-documents.
    "shell": re.compile(r"""(?P<comment>(?:^|(?<=\s))\#[^\n]*) | (?P<literal>(?P<body>(?:(?!\s\#)[^\n])+))""", re.M | re.X),
}


def language_of(path: str) -> str | None:
    name = path.rsplit("/", 1)[-1]
    if name.endswith(CPP):
        return "cpp"
    if name.endswith(".py"):
        return "python"
    if name == "CMakeLists.txt" or name.endswith(".cmake"):
        return "cmake"
    if name in ("dev", "run", "Containerfile") or name.endswith(".sh"):
        return "shell"
    return None


class Span(typing.NamedTuple):
    kind: str  # comment, docstring, literal or character
    start: int
    end: int
    body_start: int
    body: str
    prefix: str  # letters before a Python literal, in lower case; empty for other languages


def _docstring_lines(text: str) -> set[int]:
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return set()
    found: set[int] = set()
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        body = getattr(node, "body", None)
        if not isinstance(body, list) or not body:
            continue
        waiting += body + getattr(node, "orelse", []) + getattr(node, "handlers", []) + getattr(node, "finalbody", [])
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            first = body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                found.add(first.lineno)
    return found


def spans(text: str, language: str) -> typing.Iterator[Span]:
    docstrings = _docstring_lines(text) if language == "python" else set()
    line, counted = 1, 0
    for found in _SPANS[language].finditer(text):
        form = found.lastgroup
        start, end = found.span()
        if form in ("comment", "character"):
            yield Span(form, start, end, start, found[0], "")
            continue
        kind = "literal"
        if docstrings:
            line += text.count("\n", counted, start)
            counted = start
            if line in docstrings and not text[text.rfind("\n", 0, start) + 1 : start].strip():
                kind = "docstring"
        body = "rawbody" if form == "raw" else "body"
        prefix = ((found["rawprefix"] if form == "raw" else found["prefix"]) or "").lower() if language == "python" else ""
        yield Span(kind, start, end, found.start(body), found[body], prefix)


def blank(text: str) -> str:
    """Replaces all characters except newlines with spaces."""
    return re.sub(r"[^\n]", " ", text)


# ---- texts --------------------------------------------------------------------------------------------------------------


class Text:
    """A comment or a message. `parts` contains the offset and the line at which each of its parts starts."""

    def __init__(self, kind: str, text: str, line: int, is_trailing: bool = False):
        self.kind = kind
        self.text = text
        self.parts = [(0, line)]
        self.is_trailing = is_trailing  # true for a comment that follows code on its line

    def append(self, joint: str, text: str, line: int) -> None:
        self.text += joint
        self.parts.append((len(self.text), line))
        self.text += text

    def line_at(self, offset: int) -> int:
        start, line = self.parts[bisect.bisect_right(self.parts, (offset, 1 << 40)) - 1]
        return line + self.text.count("\n", start, offset)


_ESCAPE = re.compile(r"\\.", re.S)
_PLACEHOLDER = re.compile(r"\{\{|\}\}|\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_COMMENT_MARK = re.compile(r"\A(?://[/!]?<?|/\*+|#+(?:\[\[)?)[ ]?|\s*(?:\*/|\]\])\Z")


def split(text: str, language: str) -> tuple[list[Text], str]:
    """Returns the comments and messages of a file, and its code. The code is the file with spaces in place of comments and
    literals."""
    texts: list[Text] = []
    code: list[str] = []
    at = 0
    line = 1
    joins = None  # if the next span has this kind, it continues the last text; None if no span can continue it
    for span in spans(text, language):
        between = text[at : span.start]
        code.append(between)
        line += between.count("\n")
        code.append(blank(text[span.start : span.end]) if language != "shell" or span.kind == "comment" else span.body)
        only_blank = not between.strip()
        if span.kind == "comment":
            own_line = not text[text.rfind("\n", 0, span.start) + 1 : span.start].strip()
            body = _COMMENT_MARK.sub("", span.body)
            if joins == "comment" and own_line and only_blank and between.count("\n") == 1:
                texts[-1].append("\n", body, line)
            elif not span.body.startswith("#!"):
                texts.append(Text("comment", body, line, not own_line))
            joins = "comment" if own_line and texts else None
        elif span.kind == "docstring":
            texts.append(Text("comment", span.body, line))
            joins = None
        elif span.kind == "literal":
            body = _ESCAPE.sub(lambda found: ' "' if found[0] == '\\"' else "  ", span.body) if "\\" in span.body else span.body
            if "f" in span.prefix:  # the content of a placeholder in an f-string counts as code
                code[-1] = code[-1][:-1] + " " + " ".join(_PLACEHOLDER.findall(span.body)).replace("\n", " ") + " "
                body = _PLACEHOLDER.sub(lambda found: blank(found[0]), body)
            begins = line + text.count("\n", span.start, span.body_start)
            if joins == "literal" and only_blank and language in ("cpp", "python"):
                texts[-1].append("", body, begins)
            elif not _is_include(text, span.start):
                texts.append(Text("message", body, begins))
            joins = "literal"
        else:
            joins = None
        line += text.count("\n", span.start, span.end)
        at = span.end
    code.append(text[at:])
    return texts, "".join(code)


def _is_include(text: str, at: int) -> bool:
    return text[text.rfind("\n", 0, at) + 1 : at].lstrip().startswith("#include")


# ---- Markdown -----------------------------------------------------------------------------------------------------------


def is_generated(page: str) -> bool:
    """Returns True if the page is generated: its first 400 characters contain a comment that starts with "Generated"."""
    return "<!-- Generated" in page[:400]


def blocks(text: str) -> list[tuple[int, str]]:
    """Returns paragraphs, headings, list items and table cells, each with the number of its first line. Code blocks are
    skipped."""
    found: list[tuple[int, str]] = []
    open_block = False  # true if the next line of text continues the last block
    fenced = blank_before = False
    in_list = False
    visible = re.sub(r"<!--.*?-->", lambda c: "\n" * c.group().count("\n"), text, flags=re.S)
    for number, line in enumerate(visible.split("\n"), start=1):
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


def visible_text(block: str) -> str:
    """Returns the text that a reader sees, without images, link targets and tags. `X` replaces all inline code, and each link
    whose text is the name of its file."""
    block = re.sub(r"(`+).*?\1", lambda c: "X" + "\n" * c.group().count("\n"), block, flags=re.S)
    block = re.sub(r"\[([\w-]+)\]\([^)\s]*\b\1\.md\)", "X", block)
    block = re.sub(r"!\[[^\]]*\]\([^)]*\)", lambda c: "\n" * c.group().count("\n"), block)
    block = re.sub(r"\]\([^)]*\)", lambda c: "]" + "\n" * c.group().count("\n"), block)
    return re.sub(r"</?[a-z][^>]*>|[\[\]]", "", block)
