"""README and docs are true: their links lead somewhere, their commands are accepted, their config trains."""

import json
import pathlib
import re
import shlex

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def commands(page: pathlib.Path) -> list[str]:
    """Lines of code blocks and of indented examples that start ddprun."""
    return [line.split("#")[0].split("  ", 1)[0].strip() for line in re.findall(r"^(?: {4})?(ddprun .*)$", page.read_text(encoding="utf-8"), re.M)]


def test_the_ways_of_use_are_accepted(ddprun_bin, tmp_path):
    (tmp_path / "train.json").write_text((ROOT / "configs" / "fashion-mnist.json").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "train.py").write_text("")
    shown = [c for c in commands(ROOT / "README.md") if " train." in c]
    assert len(shown) >= 3
    for command in shown:
        arguments = shlex.split(command)[1:]
        done = jobs.run([ddprun_bin, "--dry-run", *arguments], cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"


def test_the_config_of_the_readme_is_valid(ddprun_bin, tmp_path):
    text = re.search(r"```json\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S).group(1)
    (tmp_path / "train.json").write_text(text, encoding="utf-8")
    done = jobs.run([ddprun_bin, "validate", tmp_path / "train.json"])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["epochs"] == 3


def test_subcommands_of_the_readme_exist(ddprun_bin, tmp_path):
    done = jobs.run([ddprun_bin, "report", tmp_path])
    assert done.returncode == 2 and "report.json" in done.stderr
