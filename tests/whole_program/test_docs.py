"""README and docs are correct: their links lead to existing places, their commands are accepted, and their config trains."""

import json
import pathlib
import re
import shlex
import shutil
import sys
import typing

import jobs
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
DECISIONS = ROOT / "docs" / "internals" / "decisions"


def without_code(page: pathlib.Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page: pathlib.Path) -> set[str]:
    """The anchors of a page's headings, as the usual Markdown viewers make them."""
    headings = re.findall(r"^#+ +(.*)$", without_code(page), re.M)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target, _, anchor in re.findall(r"\]\(([^)#\s]*)(#([^)]*))?\)", without_code(page)):
        if "://" not in target:
            there = page.parent / target if target else page
            assert there.exists(), target
            assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


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


NOT_RUN = "<!-- not run by tests: "  # followed by the reason; stands above a block of code
OPERATORS = set("|&;()<>")
TEXTS = {"--help", "--help-all", "--version", "--torchrun-help", "--print-completion", "--print-man"}


class Command(typing.NamedTuple):
    line: int
    words: list[str]  # after `ddprun`


def code_lines(page: pathlib.Path) -> list[tuple[int, str]]:
    """The lines of shell blocks and indented examples, with continued lines joined. Blocks that are marked as not run are left out."""
    found: list[tuple[int, str]] = []
    fence, marked, indented = None, False, False
    for number, line in enumerate(page.read_text(encoding="utf-8").split("\n"), start=1):
        if line.startswith("```"):
            fence = line[3:] if fence is None else None
            marked = marked and fence is not None
        elif fence is not None:
            if fence in ("sh", "bash") and not marked:
                if found and found[-1][1].endswith("\\"):
                    found[-1] = (found[-1][0], found[-1][1][:-1] + " " + line.strip())
                else:
                    found.append((number, line))
        elif line.startswith(NOT_RUN):
            marked = True
        elif line.startswith("    ddprun "):
            indented = True
            if not marked:
                found.append((number, line.strip()))
        elif line.strip() and not line.startswith("    "):
            marked, indented = marked and not indented, False
    return found


def commands(page: pathlib.Path) -> list[Command]:
    """The commands that start ddprun, also after srun or variables."""
    found = []
    for number, line in code_lines(page):
        if not re.search(r"\bddprun ", line) or line.startswith("#SBATCH"):
            continue
        # A comment begins at #. After an indented command, text behind two blanks is a remark as well.
        lexer = shlex.shlex(line.split("  #")[0], posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        simple: list[list[str]] = [[]]
        for word in lexer:
            if set(word) <= OPERATORS:
                simple.append([])
            else:
                simple[-1].append(word)
        for words in simple:
            while words and (re.match(r"\w+=", words[0]) or words[0] in ("exec", "srun", "nohup", "time") or "srun" in line and words[0].startswith("-")):
                words.pop(0)
            if words and re.fullmatch(r"(\S*/)?ddprun", words[0]):
                found.append(Command(number, words[1:]))
    return found


@pytest.fixture(scope="module")
def folder_of_the_reader(tmp_path_factory):
    """A folder in which a reader would type the commands of a page, with the files that they name."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "configs", folder / "configs")
    (folder / "train.json").write_text((ROOT / "configs" / "fashion-mnist.json").read_text(encoding="utf-8"), encoding="utf-8")
    return folder


def make_files(folder: pathlib.Path, words: list[str]):
    for word in words:
        if word.endswith(".py") and not (folder / word).exists():
            (folder / word).parent.mkdir(parents=True, exist_ok=True)
            (folder / word).write_text("")
        elif word.startswith("./") and not (folder / word).exists():
            (folder / word).write_text("#!/bin/sh\n")
            (folder / word).chmod(0o755)


@pytest.mark.parametrize("page", [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))], ids=lambda p: str(p.relative_to(ROOT)))
def test_commands_are_accepted(page, ddprun_bin, folder_of_the_reader):
    """Each command is parsed, and planned if it would start something. Marked commands (NOT_RUN) need something that is missing here."""
    refused = []
    for command in commands(page):
        words = command.words
        make_files(folder_of_the_reader, words)
        if words[0] in ("validate", "init", "report", "doctor", "join", "token", "link-torchrun", "help", "version"):
            text = "--help-all" if words[0] == "join" else [words[0], "--help"]
            known = jobs.run([ddprun_bin, *([text] if isinstance(text, str) else text)]).stdout
            problem = [word for word in words if word.startswith("-") and word not in known]
        elif TEXTS & set(words):
            problem = jobs.run([ddprun_bin, *words]).returncode
        else:
            done = jobs.run([ddprun_bin, "--dry-run", *words], cwd=folder_of_the_reader, PYTHON_EXEC=sys.executable)
            absent_data = done.returncode == 2 and "all files that the config names:\n" in done.stderr  # data that only the page's machine has
            problem = done.stderr if done.returncode and not absent_data else None
        if problem:
            refused.append(f"{page.name}:{command.line}: ddprun {shlex.join(words)}: {problem}")
    assert not refused, "\n".join(refused)


def test_the_commands_are_found():
    assert len([c for c in commands(ROOT / "README.md") if any(word.startswith("train.") for word in c.words)]) >= 3
    assert sum(len(commands(page)) for page in (ROOT / "docs").glob("*.md")) > 40


def test_the_config_of_the_readme_is_valid(ddprun_bin, tmp_path):
    text = re.search(r"```json\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S).group(1)
    (tmp_path / "train.json").write_text(text, encoding="utf-8")
    done = jobs.run([ddprun_bin, "validate", tmp_path / "train.json"])
    assert done.returncode == 0 or "all files that the config names:\n" in done.stderr, done.stderr
    assert json.loads(done.stdout)["epochs"] == 3


def test_subcommands_of_the_readme_exist(ddprun_bin, tmp_path):
    done = jobs.run([ddprun_bin, "report", tmp_path])
    assert done.returncode == 2 and "report.json" in done.stderr


def test_the_tests_that_the_mends_name_are_there():
    named = re.findall(r"`([\w/]+\.(?:py|cpp))`:\s+`([\w.]+)`", (DECISIONS.parent / "mends.md").read_text(encoding="utf-8"))
    assert len(named) > 100
    for file, name in named:
        there = next(path for path in (ROOT / "tests" / "whole_program" / file, ROOT / "tests" / file) if path.exists())
        definition = rf"def {name}\b" if file.endswith(".py") else r"TEST\w*\(" + name.replace(".", r",\s*") + r"\)"
        assert re.search(definition, there.read_text(encoding="utf-8")), f"{file}: {name}"
