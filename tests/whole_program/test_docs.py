"""README and docs are true: their links lead somewhere, their commands are accepted, their config trains."""

import json
import pathlib
import re
import shlex

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DECISIONS = ROOT / "docs" / "internals" / "decisions"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_a_cited_decision_is_in_the_table():
    table = (DECISIONS / "README.md").read_text(encoding="utf-8").split("## Settled questions")[1]
    numbers = {int(n) for n in re.findall(r"^\| *(\d+)", table, re.M)}
    cited = set()
    for top in ("common", "rendezvous", "launcher", "trainer", "cmd", "tests"):
        for file in (ROOT / top).rglob("*.[ch]pp"):
            text = file.read_text(encoding="utf-8")
            assert "DECISIONS.md" not in text, file
            cited |= {int(n) for n in re.findall(r"\bdecision (\d+)", text)}
    assert len(cited) > 10 and cited <= numbers, cited - numbers


def test_every_decision_is_in_the_index():
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    records = sorted(str(file.relative_to(DECISIONS)) for file in DECISIONS.rglob("*.md") if file.name != "README.md")
    assert len(records) > 100
    assert [] == [record for record in records if f"]({record})" not in index]


@pytest.mark.parametrize("top", ["common", "rendezvous", "launcher", "trainer", "cmd", "bench", "cmake"])
def test_files_that_a_comment_names_are_there(top):
    names = {file.name for folder in ("common", "rendezvous", "launcher", "trainer", "cmd", "tests", "bench", "cmake") for file in (ROOT / folder).rglob("*.*")}
    foreign = {"pbf_builder.hpp", "CPUGeneratorImpl.cpp", "alloc_cpu.cpp", "reducer.cpp", "probe.cpp", "ddprun_built_version.hpp"}
    for file in sorted((ROOT / top).rglob("*.[ch]pp")):
        for line in file.read_text(encoding="utf-8").splitlines():
            if "#include" in line:
                continue
            for name in re.findall(r"([\w/.-]*\w\.[ch]pp)\b", line):
                if name.split("/")[-1] in foreign:
                    continue
                there = (ROOT / name).exists() or any(str(found).endswith("/" + name) for found in (ROOT / top).rglob(name.split("/")[-1])) if "/" in name else name in names
                assert there, f"{file.relative_to(ROOT)} names {name}"


def test_the_table_of_faults_names_tests_that_are_there():
    tests = ROOT / "tests"
    text = (tests / "faults.md").read_text(encoding="utf-8")
    named = re.findall(r"[\w/]+\.(?:py|cpp)\b", text)
    assert len(named) > 80
    assert [] == [name for name in named if not any((folder / name).exists() for folder in (tests, tests / "whole_program"))]
    functions = "\n".join(file.read_text(encoding="utf-8") for file in (tests / "whole_program").glob("test_*.py"))
    assert [] == [name for name in re.findall(r"`(\w+)\.*`", text) if name not in functions]


def test_the_recipes_requeue_what_was_saved_cut_off_or_stopped():
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    assert "action: Ignore\n        onExitCodes: {operator: In, values: [85, 86, 143]}" in text
    assert "case $? in 85|86|143) scontrol requeue" in text


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
