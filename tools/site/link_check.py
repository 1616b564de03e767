"""Checks the finished HTML files: each link leads to a file and an anchor that exist, and no page loads a file from the
network."""

import html.parser
import pathlib
import urllib.parse


class Page(html.parser.HTMLParser):
    def __init__(self, text: str):
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []  # files that a browser loads together with the page
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.update(value for value in (values.get("id"), values.get("name") if tag == "a" else None) if value)
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "link" and values.get("href") and values.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.append(values["href"])
        if tag in ("script", "img", "iframe", "source") and values.get("src"):
            self.loaded.append(values["src"])


def check(site: pathlib.Path) -> tuple[int, list[str], list[str]]:
    """Returns the number of links within the site, the broken links, and the files that are loaded from the network."""
    read = {file: Page(file.read_text(encoding="utf-8")) for file in sorted(site.rglob("*.html"))}
    count, broken, network = 0, [], []
    for file, page in read.items():
        if file.name == "404.html":  # the links of this page start at the root of the server
            continue
        name = file.relative_to(site)
        for link in [*page.links, *page.loaded]:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    network.append(f"{name}: loads {link}")
                continue
            count += 1
            there = (file.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else file
            if there.is_dir():
                there /= "index.html"
            anchor = urllib.parse.unquote(parts.fragment)
            if not there.is_file():
                broken.append(f"{name}: a link to a file that does not exist: {link}")
            elif anchor and there in read and anchor not in read[there].anchors:
                broken.append(f"{name}: a link to an anchor that does not exist: {link}")
    return count, broken, network
