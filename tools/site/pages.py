"""Collects the pages of the docs' website from the repository, and converts links and lists for the site generator.

The pages are written for readers of the repository. The site differs in three ways:

- Its root is docs/. Examples and the pages of the repository's top folder get an address below docs/.
- It contains no source files. A link to a source file leads to the repository on the web if its address is known; otherwise it
  becomes plain text.
- Python-Markdown requires four spaces to nest a list, and GitHub requires two.
"""

import pathlib
import posixpath
import re

TOP = {"README.md": "overview.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "reporting.md", "LICENSE": "LICENSE.txt"}
LANGUAGES = {".py": "python", ".cpp": "cpp", ".json": "json", ".txt": "cmake"}
NOT_IN_THE_SITE = "not-in-the-site"  # a temporary link target, until the link becomes plain text
MAX_BYTES_SHOWN = 20_000  # larger files of an example are treated as data


def address(path: str) -> str | None:
    """Returns the address of a repository's file in the site, or None if the site does not contain it."""
    if path in TOP:
        return TOP[path]
    if path == "docs/README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and path.endswith("README.md"):
        return path
    return None


def collect(root: pathlib.Path, to: pathlib.Path, source_address: str) -> list[str]:
    """Writes all pages and their images to the folder `to`. Returns the addresses of the pages. `source_address` is the web
    address of the repository's files, or empty if unknown."""
    pages = []
    files = [*(root / "docs").rglob("*"), *(root / "examples").glob("*"), *(root / "examples").glob("*/*"), *(root / name for name in TOP)]
    for file in sorted(file for file in files if file.is_file()):
        path = file.relative_to(root).as_posix()
        there = address(path)
        if there is None:
            continue
        (to / there).parent.mkdir(parents=True, exist_ok=True)
        if not path.endswith(".md"):
            (to / there).write_bytes(file.read_bytes())
            continue
        text = nested_by_four(with_links(file.read_text(encoding="utf-8"), path, root, source_address))
        if path.startswith("examples/") and file.parent.name != "examples":
            text += shown_sources(file.parent)
        (to / there).write_text(text, encoding="utf-8")
        pages.append(there)
    return pages


def shown_sources(folder: pathlib.Path) -> str:
    """Returns the source files of an example as code blocks."""
    shown = ""
    for file in sorted(folder.iterdir()):
        if file.suffix in LANGUAGES and file.stat().st_size < MAX_BYTES_SHOWN:
            shown += f"\n## {file.name}\n\n```{LANGUAGES[file.suffix]}\n{file.read_text(encoding='utf-8').rstrip()}\n```\n"
    return shown


def with_links(text: str, path: str, root: pathlib.Path, source_address: str) -> str:
    """Returns the page with links to addresses of the site. `path` is the page's path in the repository. Raises ValueError for
    a link to a file that does not exist."""
    here = address(path)

    def link(found: re.Match) -> str:
        target, anchor = found["target"], found["anchor"] or ""
        if not target or re.match(r"\w+:", target):
            return found[0]
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if not (root / linked).exists():
            raise ValueError(f"{path}: a link to {target}, which does not exist")
        if (root / linked / "README.md").exists():
            linked += "/README.md"
        if there := address(linked):
            return f"]({posixpath.relpath(there, posixpath.dirname(here) or '.')}{anchor})"
        return f"]({source_address}/{linked}{anchor})" if source_address else f"]({NOT_IN_THE_SITE})"

    # The text of a link may contain inline code, so the expression starts at the bracket after the text. `[](` is excluded,
    # because a C++ lambda starts with it.
    changed = outside_blocks(text, lambda part: re.sub(r"\](?<!\[\])\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)", link, part))
    return outside_blocks(changed, lambda part: re.sub(rf"\[([^\[\]]*)\]\({NOT_IN_THE_SITE}\)", r"\1", part))


def outside_blocks(text: str, change) -> str:
    """Applies `change` to each part of a page that is not a code block."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if i % 2 else change(part) for i, part in enumerate(parts))


def nested_by_four(text: str) -> str:
    """Indents nested lists and further paragraphs of a list item by four spaces instead of two or three."""

    def indent(part: str) -> str:
        lines = part.split("\n")
        in_list = False
        for i, line in enumerate(lines):
            if re.match(r"([-*]|\d+\.) ", line):
                in_list = True
                # Escapes a number at the start of the item's text, which must not become a nested list.
                lines[i] = re.sub(r"^(- \d+)\. ", r"\1\. ", line)
            elif line.strip() and not line.startswith(" ") and (i == 0 or not lines[i - 1].strip()):
                in_list = False
            elif in_list and re.match(r" {2,3}\S", line) and (re.match(r" +([-*]|\d+\.) ", line) or not lines[i - 1].strip()):
                lines[i] = "    " + line.lstrip()
        return "\n".join(lines)

    return outside_blocks(text, indent)


def headings_with_links(page: str) -> list[tuple[str, list[str]]]:
    """Returns the second-level headings of an index page, each with the targets of the links in its list. Links before the
    first heading have the heading ""."""
    found: list[tuple[str, list[str]]] = [("", [])]
    for line in page.splitlines():
        if line.startswith("## "):
            found.append((line[3:], []))
        elif line.startswith("- "):
            found[-1][1].extend(re.findall(r"\]\(([^)#]+\.md)\)", line))
    return [(heading, targets) for heading, targets in found if targets]


def navigation(root: pathlib.Path, pages: list[str]) -> list:
    """Returns the menu: pages in the order of the index pages of docs/. Raises ValueError if a page is in no index."""
    left = dict.fromkeys(pages)  # a dict is used as an ordered set

    def take(index: str) -> list:
        folder = posixpath.dirname(index)
        sections = []
        for heading, targets in headings_with_links((root / index).read_text(encoding="utf-8")):
            places = [address(posixpath.normpath(posixpath.join(folder, target))) for target in targets]
            taken = [place for place in dict.fromkeys(places) if place in left]
            for place in taken:
                left.pop(place)
            if taken:
                sections.append({heading: taken} if heading else taken)
        return [entry for section in sections for entry in (section if isinstance(section, list) else [section])]

    for own in ("index.md", "examples/README.md", "internals/README.md", "internals/decisions/README.md", *(TOP[name] for name in TOP if name.endswith(".md"))):
        left.pop(own, None)
    user = take("docs/README.md")
    examples = [place for place in left if place.startswith("examples/")]
    for place in examples:
        left.pop(place)
    # The more than 200 decision records are listed in their index, but not in the menu.
    take("docs/internals/decisions/README.md")
    internals = take("docs/internals/README.md")
    if left:
        raise ValueError(f"these pages are in no index (docs/README.md, docs/internals/README.md, docs/internals/decisions/README.md): {', '.join(left)}")
    sections = {"Examples": ["examples/README.md", *examples], "Internals": ["internals/README.md", *internals, "internals/decisions/README.md"],
                "Project": [place for name, place in TOP.items() if name.endswith(".md")]}
    # An earlier version of the docs may lack some pages.
    there = {heading: [place for place in places if place in pages] for heading, places in sections.items()}
    return ["index.md", *user, *({heading: places} for heading, places in there.items() if places)]
