"""Tests of the website of the docs (tools/site). Each page must be in the menu or in an index, links must point to pages of
the site, and broken links must be reported. The build of the site needs mkdocs, which the hosted workflow installs (./dev
site)."""

import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/site"))

import link_check  # noqa: E402
import pages  # noqa: E402


def test_all_pages_have_a_place(tmp_path):
    found = pages.collect(ROOT, tmp_path, "")
    menu = repr(pages.navigation(ROOT, found))
    for page in found:
        assert f"'{page}'" in menu or page.startswith("internals/decisions/"), page
    assert {"index.md", "install.md", "changelog.md", "examples/ddp/README.md", "internals/decisions/build/wheel.md"} <= set(found)
    assert "```python\n" in (tmp_path / "examples/ddp/README.md").read_text(encoding="utf-8")


def test_a_page_without_an_index_is_refused(tmp_path):
    found = pages.collect(ROOT, tmp_path, "")
    with pytest.raises(ValueError, match="these pages are in no index .*: forgotten.md"):
        pages.navigation(ROOT, [*found, "forgotten.md"])


@pytest.mark.parametrize(("path", "text", "expected"), [
    ("docs/watching.md", "[the schema](schemas/metrics.schema.json) and [install](install.md#wheel)", "[the schema](schemas/metrics.schema.json) and [install](install.md#wheel)"),
    ("docs/internals/style.md", "[rules](../../CONTRIBUTING.md#house-rules)", "[rules](../contributing.md#house-rules)"),
    ("docs/install.md", "[all](README.md), [more](https://example.org)", "[all](index.md), [more](https://example.org)"),
    ("README.md", "![loss](docs/gpt-loss.svg), [all](docs/README.md)", "![loss](gpt-loss.svg), [all](index.md)"),
    ("examples/ddp/README.md", "[resume](../resume/README.md), [Slurm](../../docs/slurm.md)", "[resume](../resume/README.md), [Slurm](../../slurm.md)"),
    ("docs/how-it-works.md", "[`hang`](../launcher/hang)", "`hang`"),
    ("docs/how-it-works.md", "```cpp\n[](int& a) {}\n```\n", "```cpp\n[](int& a) {}\n```\n"),
])
def test_links_lead_to_places_of_the_site(path, text, expected):
    assert pages.with_links(text, path, ROOT, "") == expected


def test_links_to_sources_lead_to_the_repository():
    assert pages.with_links("[hang](../launcher/hang)", "docs/hangs.md", ROOT, "https://host/ddprun/blob/main") == "[hang](https://host/ddprun/blob/main/launcher/hang)"
    with pytest.raises(ValueError, match="docs/hangs.md: a link to nowhere.md, which does not exist"):
        pages.with_links("[x](nowhere.md)", "docs/hangs.md", ROOT, "")


def test_inner_lists_are_indented_by_four():
    assert pages.nested_by_four("- 4. a\n  - b") == "- 4\\. a\n    - b"
    assert pages.nested_by_four("- a\n  more\n  - b\n    more\n\n  text\n\nend\n  - c") == "- a\n  more\n    - b\n    more\n\n    text\n\nend\n  - c"


def test_broken_links_of_the_finished_site_are_found(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "index.html").write_text('<a href="one/#here">x</a><a href="one/#there">x</a><a href="two/">x</a><a href="https://example.org">x</a>')
    (tmp_path / "one/index.html").write_text('<h1 id="here">x</h1><script src="https://example.org/a.js"></script><img src="../gone.svg">')
    count, broken, network = link_check.check(tmp_path)
    assert count == 4
    assert broken == ["index.html: a link to an anchor that does not exist: one/#there", "index.html: a link to a file that does not exist: two/",
                      "one/index.html: a link to a file that does not exist: ../gone.svg"]
    assert network == ["one/index.html: loads https://example.org/a.js"]
